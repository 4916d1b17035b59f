"""Binding of a call's arguments to the parameters of a row.

Torch's functions take more than one form: ``x.view(2, 3)`` and ``x.view((2, 3))``, ``axis=`` for ``dim=``,
``pin_memory=False``. A row has its parameters in one form. Its *spelling*, a function with the user's
signature, returns the row's arguments; keyword arguments that it lacks are renamed, or dropped where their
value is the default.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any

import torch

from thunder.base.devices import Device, to_torch_device
from thunder.base.dtypes import dtype, to_torch_dtype
from thunder.base.errors import UnsupportedOperator
from thunder.base.signature import make_normaliser
from thunder.ops.torch_errors import described_arguments

Fn = Callable[..., Any]
#: returns the row's (args, kwargs) for those of a call
Spelling = Callable[..., tuple[tuple[Any, ...], dict[str, Any]]]

#: other names of torch's parameters: numpy's, and those of methods
_RENAMED = {
    "axis": "dim",
    "axes": "dims",
    "keepdims": "keepdim",
    "x": "input",
    "a": "input",
    "x1": "input",
    "x2": "other",
    "split_size": "split_size_or_sections",
    "self": "input",
}

#: parameters that many torch functions have and rows lack, with the value that has no effect
_NEUTRAL: dict[str, Any] = {
    "out": None,
    "generator": None,
    "layout": torch.strided,
    "pin_memory": False,
    "requires_grad": False,
    "memory_format": torch.preserve_format,
    "non_blocking": False,
}


class BindingError(TypeError):
    """The arguments of a call do not fit the parameters of a row."""


def argument_binder(operator_id: str, name: str, meta: Fn, spelling: Spelling | None) -> Spelling:
    """Return the function that binds a call's arguments to the parameters of ``meta``.

    It fills in defaults, and puts torch's dtypes and devices in place of thunder's. It raises BindingError
    for arguments that do not fit, and UnsupportedOperator for a keyword that the row lacks and that has an
    effect.
    """
    bind = spelling or make_normaliser(meta, name)

    def bound(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            row_args, row_kwargs = bind(*args, **kwargs)
        except TypeError as error:
            renamed = _renamed_keywords(operator_id, (bind, meta), args, kwargs)
            if renamed.keys() == kwargs.keys():
                raise as_binding_error(error, bind, args, kwargs) from None
            try:
                row_args, row_kwargs = bind(*args, **renamed)
            except TypeError as second:
                raise as_binding_error(second, bind, args, renamed) from None
        return _with_torch_types(row_args, row_kwargs)

    return bound


def as_binding_error(error: TypeError, fn: Fn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> TypeError:
    """Return the BindingError of a failed call of ``fn``, or ``error`` if the arguments fit."""
    if isinstance(error, BindingError):
        return error
    try:
        inspect.signature(fn).bind(*args, **kwargs)
    except TypeError:
        return BindingError(*error.args)
    return error


def _renamed_keywords(
    operator_id: str, functions: tuple[Fn, Fn], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> dict[str, Any]:
    """Return the keyword arguments under the row's names, without those that have no effect.

    Raises UnsupportedOperator for one that the row lacks and that has an effect.
    """
    parameters = {name: p for fn in functions for name, p in inspect.signature(fn).parameters.items()}
    renamed: dict[str, Any] = {}
    for key, value in kwargs.items():
        if key in parameters:
            renamed[key] = value
        elif _RENAMED.get(key) in parameters:
            renamed[_RENAMED[key]] = value
        elif key not in _NEUTRAL or (value is not None and value is not _NEUTRAL[key]):
            names = ", ".join(p for p in parameters if p != "kwargs")
            raise UnsupportedOperator(
                f"{operator_id} has no argument {key!r} here",
                found=described_arguments(args, kwargs),
                hint=f"Leave {key!r} out. Arguments that work: {names}.",
            )
    return renamed


def with_numpy_names(fn: Fn, replacement: Fn, kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return the keyword arguments of a call of ``replacement`` under its names.

    ``axis=0, keepdims=True``   →   ``dim=0, keepdim=True``

    Torch takes NumPy's names where ``fn`` is implemented in C++.
    """
    if not kwargs or not isinstance(fn, _NATIVE):
        return kwargs
    parameters = _parameters(replacement)
    return {_RENAMED[k] if _can_rename(k, parameters) else k: v for k, v in kwargs.items()}


_parameters = functools.cache(lambda fn: inspect.signature(fn).parameters)
_NATIVE = (types.BuiltinFunctionType, types.MethodDescriptorType)


def _can_rename(key: str, parameters: Mapping[str, Any]) -> bool:
    return key not in parameters and _RENAMED.get(key) in parameters


_TORCH_TYPES: dict[type, Fn] = {dtype: to_torch_dtype, Device: to_torch_device}
_OWN_TYPES = frozenset(_TORCH_TYPES)


def _with_torch_types(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Replace thunder's dtypes and devices by torch's: the call runs as one of torch's."""
    if not _OWN_TYPES.isdisjoint(map(type, args)):
        args = tuple(_TORCH_TYPES[type(a)](a) if type(a) in _TORCH_TYPES else a for a in args)
    for key, value in kwargs.items():
        if type(value) in _TORCH_TYPES:
            kwargs = {**kwargs, key: _TORCH_TYPES[type(value)](value)}
    return args, kwargs


def unpacked(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the items of ``*size``: ``((2, 3),)`` and ``(2, 3)`` → ``(2, 3)``."""
    if len(values) == 1 and isinstance(values[0], tuple | list):
        return tuple(values[0])
    return values
