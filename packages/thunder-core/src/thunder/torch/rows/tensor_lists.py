"""Functions of lists of tensors, ``torch._foreach_*``: the function of each tensor.

torch._foreach_mul_(ts, 0.9)     →   t0.mul_(0.9); t1.mul_(0.9)
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.attribute_paths import find_torch
from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.langctx import current_language
from thunder.ir.proxies import TensorProxy
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torch_names

Fn = Callable[..., Any]

#: keywords that all tensors share; other arguments are passed by position
_KEYWORDS = frozenset({"alpha", "value", "dtype", "memory_format", "non_blocking"})
#: functions that have another name for one tensor
_OF_ONE = {"norm": "torch.linalg.vector_norm", "max": "torch.Tensor.max"}
#: of a number, the function that has the same result
_WITH_NUMBER = {"maximum": "clamp_min", "minimum": "clamp_max"}
#: functions without a counterpart for one tensor
_LEFT_OUT = frozenset({"powsum", "mm"})


def _function(name: str) -> Fn:
    """Return the operator for one tensor."""
    fn = find_torch(_OF_ONE.get(name, f"torch.Tensor.{name}"))
    symbol = None if fn is None else current_language().resolve(fn)
    if symbol is None:
        assert name.endswith("_"), f"torch.Tensor.{name} has a row"
        functional = _function(name[:-1])  # such as ``maximum_``, which is no method
        return lambda x, *args: ltorch.copy_(x, functional(x, *args))
    return symbol


def _of_lists(name: str) -> Fn:
    is_inplace = name.endswith("_")

    def call(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = _by_position(name, args, kwargs)
        if not kwargs.keys() <= _KEYWORDS:
            raise UnsupportedOperator(
                f"torch._foreach_{name} with the keyword {min(kwargs.keys() - _KEYWORDS)!r}",
                hint="Pass the argument by its position.",
            )
        lengths = [len(a) for a in args if isinstance(a, list | tuple)]
        if any(n != lengths[0] for n in lengths):
            raise OperatorError(
                "Tensor lists must have the same number of tensors, got "
                f"{lengths[0]} and {next(n for n in lengths if n != lengths[0])}"
            )
        if is_inplace:
            _refuse_repeated(name, args[0])
        results = [
            _call_one(name, [a[i] if isinstance(a, list | tuple) else a for a in args], kwargs)
            for i in range(lengths[0])
        ]
        return args[0] if is_inplace else tuple(results)

    return call


def _refuse_repeated(name: str, tensors: Sequence[TensorProxy]) -> None:
    """Refuse a tensor that is twice in a list that is written, where its gradient is that of one write."""
    names = {x.name for x in tensors}
    if len(names) < len(tensors) and torch.is_grad_enabled() and any(x.requires_grad for x in tensors):
        raise UnsupportedOperator(
            f"torch._foreach_{name} with a tensor twice in the list, which requires grad",
            hint="Write to each tensor once.",
        )


def _by_position(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the arguments of a call with those by position that all tensors do not share.

    ``_foreach_lerp(xs, ys, weight=0.1)``   →   ``(xs, ys, 0.1)``
    """
    named = kwargs.keys() - _KEYWORDS
    if not named:
        return args, kwargs
    packet = getattr(torch.ops.aten, f"_foreach_{name}")
    for overload in packet.overloads():
        parameters = [a.name for a in getattr(packet, overload)._schema.arguments if not a.kwarg_only]
        following = parameters[len(args) :][: len(named)]
        if named == set(following):
            rest = {key: value for key, value in kwargs.items() if key not in named}
            return (*args, *(kwargs[key] for key in following)), rest
    return args, kwargs


def _call_one(name: str, args: list[Any], kwargs: dict[str, Any]) -> Any:
    base = name.removesuffix("_")
    if base in _WITH_NUMBER and not isinstance(args[1], TensorProxy):
        name = _WITH_NUMBER[base] + name[len(base) :]
    if base in ("addcmul", "addcdiv") and len(args) > 3:
        *args, value = args
        if isinstance(value, TensorProxy):
            raise UnsupportedOperator(
                f"torch._foreach_{name} with a tensor of factors", hint="Pass a list of numbers."
            )
        kwargs = {**kwargs, "value": value}
    if not isinstance(args[0], TensorProxy):
        return ltorch.pow(*args, **kwargs)  # a number to the power of tensors
    return _function(name)(*args, **kwargs)


for _path in dir(torch):
    _name = re.fullmatch(r"_foreach_(\w+)", _path)
    if _name is not None and _name[1].removesuffix("_") not in _LEFT_OUT:
        torch_names(f"torch.{_path}")(_of_lists(_name[1]))
