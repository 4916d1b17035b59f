"""Binding of call arguments to parameters, with CPython's error messages (``initialize_locals`` in
Python/ceval.c).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType
from typing import Any

from thunder.core.interpreter.decode import Decoded
from thunder.core.interpreter.policy import MISSING, FunctionParts

try:  # since 3.13 a misspelt keyword argument is answered with the likely one
    from _suggestions import _generate_suggestions as _suggest  # type: ignore[import-not-found]
except ImportError:

    def _suggest(candidates: list[str], name: str) -> str | None:
        return None


_VARARGS = 0x04
_VARKEYWORDS = 0x08


def bind(
    decoded: Decoded, parts: FunctionParts, qualname: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Any]:
    """The ``localsplus`` of a new frame: parameters filled, free variables from the closure, all else
    MISSING.
    """
    code = decoded.code
    count = code.co_argcount
    if not kwargs and len(args) == count and not code.co_kwonlyargcount and not code.co_flags & 0x0C:
        fast = [*args]
    else:
        fast = _bind_generally(code, parts, qualname, args, kwargs)
    fast += [MISSING] * (decoded.first_free - len(fast))
    if parts.closure is not None:
        fast += parts.closure
    return fast


def _bind_generally(
    code: CodeType, parts: FunctionParts, qualname: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Any]:
    count = code.co_argcount
    keyword_only = code.co_kwonlyargcount
    total = count + keyword_only
    fast: list[Any] = [MISSING] * total
    given = min(len(args), count)
    fast[:given] = args[:given]
    if code.co_flags & _VARARGS:
        fast.append(tuple(args[given:]))
    extra: dict[str, Any] | None = {} if code.co_flags & _VARKEYWORDS else None
    if extra is not None:
        fast.append(extra)
    if kwargs:
        _bind_keywords(code, qualname, fast, extra, kwargs)
    if len(args) > count and not code.co_flags & _VARARGS:
        raise _too_many_positional(code, parts, qualname, fast, len(args))
    defaults = parts.defaults or ()
    required = count - len(defaults)
    if given < count:
        missing = [code.co_varnames[i] for i in range(given, required) if fast[i] is MISSING]
        if missing:
            raise _missing(qualname, "positional", missing)
        for i in range(max(given, required), count):
            if fast[i] is MISSING:
                fast[i] = defaults[i - required]
    if keyword_only:
        _fill_keyword_only(code, parts, qualname, fast)
    return fast


def _bind_keywords(
    code: CodeType, qualname: str, fast: list[Any], extra: dict[str, Any] | None, kwargs: Mapping[str, Any]
) -> None:
    total = code.co_argcount + code.co_kwonlyargcount
    names = code.co_varnames
    positional_only = code.co_posonlyargcount
    for name, value in kwargs.items():
        if not isinstance(name, str):
            raise TypeError("keywords must be strings")
        if name in names[positional_only:total]:
            at = names.index(name, positional_only, total)
            if fast[at] is not MISSING:
                raise TypeError(f"{qualname}() got multiple values for argument '{name}'")
            fast[at] = value
        elif extra is None:
            raise _unexpected_keyword(code, qualname, name, kwargs)
        else:
            extra[name] = value


def _unexpected_keyword(code: CodeType, qualname: str, name: str, kwargs: Mapping[str, Any]) -> TypeError:
    positional_only = [n for n in code.co_varnames[: code.co_posonlyargcount] if n in kwargs]
    if positional_only:
        return TypeError(
            f"{qualname}() got some positional-only arguments passed as keyword arguments: "
            f"'{', '.join(positional_only)}'"
        )
    text = f"{qualname}() got an unexpected keyword argument '{name}'"
    total = code.co_argcount + code.co_kwonlyargcount
    likely = _suggest([*code.co_varnames[code.co_posonlyargcount : total]], name)
    return TypeError(text if likely is None else f"{text}. Did you mean '{likely}'?")


def _fill_keyword_only(code: CodeType, parts: FunctionParts, qualname: str, fast: list[Any]) -> None:
    kwdefaults = parts.kwdefaults or {}
    missing = []
    for i in range(code.co_argcount, code.co_argcount + code.co_kwonlyargcount):
        if fast[i] is MISSING:
            name = code.co_varnames[i]
            if name in kwdefaults:
                fast[i] = kwdefaults[name]
            else:
                missing.append(name)
    if missing:
        raise _missing(qualname, "keyword-only", missing)


def _missing(qualname: str, kind: str, names: list[str]) -> TypeError:
    quoted = [repr(name) for name in names]
    if len(quoted) == 1:
        listed = quoted[0]
    elif len(quoted) == 2:
        listed = " and ".join(quoted)
    else:
        listed = ", ".join(quoted[:-1]) + ", and " + quoted[-1]
    plural = "" if len(names) == 1 else "s"
    return TypeError(f"{qualname}() missing {len(names)} required {kind} argument{plural}: {listed}")


def _too_many_positional(
    code: CodeType, parts: FunctionParts, qualname: str, fast: list[Any], given: int
) -> TypeError:
    count = code.co_argcount
    defaults = len(parts.defaults or ())
    if defaults:
        takes, plural = f"from {count - defaults} to {count}", True
    else:
        takes, plural = str(count), count != 1
    keyword_given = sum(value is not MISSING for value in fast[count : count + code.co_kwonlyargcount])
    also = ""
    if keyword_given:
        also = (
            f" positional argument{'' if given == 1 else 's'} (and {keyword_given} keyword-only "
            f"argument{'' if keyword_given == 1 else 's'})"
        )
    verb = "was" if given == 1 and not keyword_given else "were"
    return TypeError(
        f"{qualname}() takes {takes} positional argument{'s' if plural else ''} "
        f"but {given}{also} {verb} given"
    )
