"""Torch's functions of tensors whose class computes: opaque calls, see Note [Opaque calls].

    F.linear(x, self.weight)   →   (t1,) = run_opaque(F.linear, (x,))     # self.weight: quantized, of a class
                                                                          # that has __torch_dispatch__

The tensor itself is passed, whose identity is a fact. A result that is a tensor of such a class is refused.
"""

from __future__ import annotations

import operator
import re
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from thunder.base.errors import ThunderError, UnsupportedProgram
from thunder.base.pytree import tree_flatten
from thunder.frontend.natives import native_calls
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.tensor_classes import TORCH_CLASSES, computes_by_dispatch
from thunder.frontend.opaque_calls import opaque_acquisition
from thunder.frontend.session import TracingSession
from thunder.frontend.traced_replacements import full_name

__all__ = ["are_passed", "call"]

#: functions of Python's symbols that torch defines for tensors
_SYMBOLS = frozenset(
    getattr(operator, name)
    for name in (
        *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor"),
        *("lt", "le", "gt", "ge", "eq", "ne", "neg", "pos", "abs", "invert", "lshift", "rshift"),
    )
)
#: types of torch's functions, which have a hash
_FUNCTIONS = (
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
)
#: names of torch's functions and methods that write to an argument
_WRITING = re.compile(r"[^_]_$|^__(i(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor|[lr]shift)|setitem)__$")


def are_passed(session: TracingSession, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
    """Return whether a function of torch is passed tensors of such classes, and nothing else unread."""
    is_operator = isinstance(fn, _FUNCTIONS) and fn in session.language.functions
    if not (is_operator or _is_symbol(fn) or native_calls.is_unknown_torch(fn)):
        return False
    unread = list(_unread(session, fn, args, kwargs))
    return bool(unread) and all(
        isinstance(entry.obj, torch.Tensor) and computes_by_dispatch(entry.obj) for entry in unread
    )


def _is_symbol(fn: Any) -> bool:
    return type(fn) is types.BuiltinFunctionType and fn in _SYMBOLS


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function of torch on the tensors themselves, and record its statement.

    Raises UnsupportedProgram where a gradient of one is needed, and where it is written.
    """
    operands = list(_unread(session, fn, args, kwargs))
    refusal = operands[0].refusal
    assert refusal is not None, "an unread tensor has a refusal"
    names = () if _is_symbol(fn) else full_name(fn).split(".")
    is_writing = (
        kwargs.get("out") is not None or bool(kwargs.get("inplace")) or any(map(_WRITING.search, names))
    )
    for entry in operands:
        session.note("equal", entry.path.step("attribute", "requires_grad"), entry.obj.requires_grad)
        if is_writing or (entry.obj.requires_grad and torch.is_grad_enabled()):
            raise UnsupportedProgram(
                f"{full_name(fn)} is called with {entry.path.source}, a tensor of the class "
                f"{type(entry.obj).__qualname__}, "
                + ("and writes to an argument" if is_writing else "which requires grad"),
                hint="Call it outside of the program, or under torch.no_grad.",
            )
    return opaque_acquisition.call(session, _runner(fn, refusal), args, kwargs)


def _unread(
    session: TracingSession, fn: Any, args: Sequence[Any], kwargs: dict[str, Any]
) -> Iterator[ObjectEntry]:
    """Yield the entries of unread operands: of a symbol's function, which lists have too, no parts."""
    for leaf in args if _is_symbol(fn) else tree_flatten((args, kwargs))[0]:
        entry = session.objects.unread.get(id(leaf))
        if entry is not None:
            yield entry


def _runner(fn: Any, refusal: ThunderError) -> Callable[..., Any]:
    """Return a function that calls ``fn``, and raises a refusal for a result that is no plain tensor."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = fn(*args, **kwargs)
        for leaf in tree_flatten(result)[0]:
            if isinstance(leaf, torch.Tensor) and type(leaf) not in TORCH_CLASSES:
                raise refusal
        return result

    run.__module__, run.__qualname__ = full_name(fn).rpartition(".")[::2]
    return run
