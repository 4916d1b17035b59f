"""Binding of call arguments to parameters (``initialize_locals`` in Python/ceval.c)."""

from __future__ import annotations

import dis
from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any, Final

from thunder.interpreter.decode import Decoded
from thunder.interpreter.policy import MISSING, FunctionParts

_VARARGS: Final = 0x04
_VARKEYWORDS: Final = 0x08
_KINDS_OF_GENERATORS: Final = 0x20 | 0x80 | 0x100 | 0x200
_RETURN_NONE: Final = bytes(
    byte for name in ("RESUME", "LOAD_CONST", "RETURN_VALUE") for byte in (dis.opmap[name], 0)
)


def bind(
    decoded: Decoded, parts: FunctionParts, qualname: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Any]:
    """Return a frame's ``localsplus``: parameters first, free variables last, else MISSING.

    Raises TypeError with CPython's message if the arguments do not fit.
    """
    code = decoded.code
    if (
        not kwargs
        and len(args) == code.co_argcount
        and not code.co_kwonlyargcount
        and not code.co_flags & 0x0C
    ):
        fast = [*args]
    else:
        bound = _bind_generally(code, parts, args, kwargs)
        if bound is None:
            raise _error(code, parts, qualname, args, kwargs)
        fast = bound
    fast += [MISSING] * (decoded.first_free - len(fast))
    if parts.closure is not None:
        fast += parts.closure
    return fast


def _bind_generally(
    code: CodeType, parts: FunctionParts, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Any] | None:
    """Values of the parameters, or None if the arguments do not fit."""
    count = code.co_argcount
    total = count + code.co_kwonlyargcount
    given = min(len(args), count)
    if len(args) > count and not code.co_flags & _VARARGS:
        return None
    fast: list[Any] = [MISSING] * total
    fast[:given] = args[:given]
    if code.co_flags & _VARARGS:
        fast.append(tuple(args[given:]))
    extra: dict[str, Any] | None = None
    if code.co_flags & _VARKEYWORDS:
        extra = {}
        fast.append(extra)
    if not _bind_keywords(code, fast, extra, kwargs):
        return None
    defaults = parts.defaults or ()
    kwdefaults = parts.kwdefaults or {}
    required = count - len(defaults)
    for i in range(given, total):
        if fast[i] is MISSING:
            if required <= i < count:
                fast[i] = defaults[i - required]
            elif i >= count and code.co_varnames[i] in kwdefaults:
                fast[i] = kwdefaults[code.co_varnames[i]]
            else:
                return None
    return fast


def _bind_keywords(
    code: CodeType, fast: list[Any], extra: dict[str, Any] | None, kwargs: Mapping[str, Any]
) -> bool:
    first = code.co_posonlyargcount
    names = code.co_varnames[first : code.co_argcount + code.co_kwonlyargcount]
    for name, value in kwargs.items():
        if name in names:
            at = first + names.index(name)
            if fast[at] is not MISSING:
                return False
            fast[at] = value
        elif extra is None or not isinstance(name, str):
            return False
        else:
            extra[name] = value
    return True


def _error(
    code: CodeType, parts: FunctionParts, qualname: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> TypeError:
    """Return CPython's own error, from the same call of a native function without a body."""
    empty = code.replace(
        co_code=_RETURN_NONE,
        co_consts=(None,),
        co_flags=code.co_flags & ~_KINDS_OF_GENERATORS,
        co_cellvars=(),
        co_freevars=(),
        co_exceptiontable=b"",
    )
    function = FunctionType(empty, {}, argdefs=parts.defaults)
    function.__kwdefaults__ = None if parts.kwdefaults is None else dict(parts.kwdefaults)
    function.__qualname__ = qualname
    try:
        function(*args, **kwargs)
    except TypeError as exc:
        return exc.with_traceback(None)
    raise AssertionError(f"the interpreter could not bind arguments that CPython binds: {qualname}")
