"""Functions of operators that packages define: their faults and results are checked at each call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import Any

import torch

from thunder.base.errors import OperatorError, PluginError, UnsupportedProgram
from thunder.base.extension_origin import is_of_core
from thunder.base.plugin_calls import attributed, is_checking, kind_of, plugin_call
from thunder.base.pytree import tree_iter
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.requires_grad import any_requires_grad
from thunder.ops.extension_code import call_extension

__all__ = ["checked_bind_postprocess", "checked_meta", "checked_printer"]

Fn = Callable[..., Any]

#: what core raises within a decomposition for arguments that the operator refuses
_OF_DECOMPOSITIONS = (OperatorError, UnsupportedProgram)


def checked_meta(meta: Fn, label: str, origin: Callable[[], str], *, is_primitive: bool = True) -> Fn:
    """Return the meta function, or decomposition, of a package's operator with checks of its calls.

    A result that is not metadata is a PluginError. What it raises has a note with its package, and is a
    PluginError under `DebugOptions(check_traces=True)`, apart from the refusal of a call.
    """
    what = f"the {'meta function' if is_primitive else 'decomposition'} of operator {label!r}"
    hint = "For arguments that the operator refuses it raises thunder.core.errors.OperatorError."
    passing = (OperatorError,) if is_primitive else _OF_DECOMPOSITIONS

    def extension(*args: Any, **kwargs: Any) -> Any:
        return call_extension(meta, args, kwargs)

    call = meta
    if not is_of_core(meta):
        call = attributed(extension, what, origin, hint=hint, passing=passing, may_raise=True)

    @wraps(meta)
    def checked(*args: Any, **kwargs: Any) -> Any:
        result = call(*args, **kwargs)
        leaves = list(_leaves(result))
        for leaf in leaves:
            if not _is_result(leaf):
                raise PluginError(
                    f"{what} returned {_kind(leaf)}",
                    found={"returned": repr(leaf)},
                    hint="It returns proxies (TensorProxy(like=x)), numbers, strings, None, or nested tuples "
                    "of them.",
                ).blame(origin())
        if is_checking() and any_requires_grad(leaves) and not any_requires_grad(tree_iter((args, kwargs))):
            raise PluginError(
                f"{what} returned a result that requires grad, and no argument does",
                hint="A result requires grad where an argument does, which need not be said; "
                "TensorProxy(…, requires_grad=False) says that it never does.",
            ).blame(origin())
        return result

    return checked


def _leaves(result: Any) -> Iterator[Any]:
    """Yield what a statement assigns to names: the items of nested tuples and lists."""
    if isinstance(result, tuple | list):
        for item in result:
            yield from _leaves(item)
    else:
        yield result


def _is_result(leaf: object) -> bool:
    return leaf is None or isinstance(leaf, TensorProxy | Proxy | bool | int | float | complex | str)


def _kind(leaf: object) -> str:
    return "a torch tensor" if isinstance(leaf, torch.Tensor) else kind_of(leaf)


def checked_printer(printer: Fn | None, label: str, origin: Callable[[], str]) -> Fn | None:
    """Return the ``python_printer`` of a package's operator with checks of its calls."""
    if printer is None:
        return None
    what = f"python_printer of operator {label!r}"

    @wraps(printer)
    def checked(*args: Any, **kwargs: Any) -> Any:
        with plugin_call(what, origin, may_refuse=False):
            lines = printer(*args, **kwargs)
        is_lines = isinstance(lines, Iterable) and not isinstance(lines, str)
        lines = list(lines) if is_lines else lines
        if not is_lines or not all(isinstance(line, str) for line in lines):
            raise PluginError(
                f"{what} returned {kind_of(lines)}", hint="It returns the lines, as text."
            ).blame(origin())
        return lines

    return checked


def checked_bind_postprocess(
    postprocess: Callable[..., None] | None, label: str, origin: Callable[[], str]
) -> Callable[..., None] | None:
    """Return the ``bind_postprocess`` of a package's operator, whose faults are PluginErrors."""
    if postprocess is None:
        return None
    return attributed(postprocess, f"bind_postprocess of operator {label!r}", origin, may_refuse=False)
