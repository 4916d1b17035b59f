"""Process-wide marks: tracing in progress, and functions that stay native."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from types import FunctionType, MethodType
from typing import Any, TypeVar
from weakref import ref

from thunder.base.context_variables import assigned

_F = TypeVar("_F", bound=Callable[..., Any])

_jitting: ContextVar[bool] = ContextVar("thunder_jitting", default=False)
_opaque: dict[int, ref[FunctionType]] = {}  # by identity: read at every call, so a dictionary of integers


def is_jitting() -> bool:
    """Return whether the calling code runs because a tracer interprets it."""
    return _jitting.get()


def jitting() -> AbstractContextManager[None]:
    """Within it :func:`is_jitting` is true; entered by a tracer around its interpretation."""
    return assigned(_jitting, True)


def make_opaque(fn: _F) -> _F:
    """Mark ``fn`` to run natively wherever the interpreter meets it, and return it.

    In a compiled program a guard calls it again in each call, with the same arguments, and compares the
    result, so it should be cheap and free of effects. A tensor as an argument is refused.

    A callable implemented in C is native anyway. Any other object that is not a Python function or bound
    method is refused with TypeError, because there is no single function to mark.
    """
    if isinstance(fn, MethodType):
        make_opaque(fn.__func__)
    elif isinstance(fn, FunctionType):
        key = id(fn)
        _opaque[key] = ref(fn, lambda _: _opaque.pop(key, None))
    elif isinstance(fn, type) or hasattr(type(fn).__call__, "__code__"):
        raise TypeError(
            f"make_opaque was asked to mark {fn!r}\n  found: an object of type {type(fn).__qualname__}, "
            "which is neither a function nor a method\nMark the functions or methods that it runs."
        )
    return fn


def is_opaque(fn: FunctionType) -> bool:
    """Return whether :func:`make_opaque` marked this function."""
    return id(fn) in _opaque
