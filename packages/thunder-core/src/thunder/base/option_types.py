"""The types of options: classes, unions, literals, and unions of these."""

from __future__ import annotations

import types
from typing import Any, Literal, Union, get_args, get_origin

__all__ = ["accepts", "describe_type", "literals_of"]


def _alternatives(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def literals_of(kind: Any) -> list[str]:
    """Return the strings that a type allows by a `Literal`."""
    return [
        v
        for alt in _alternatives(kind)
        if get_origin(alt) is Literal
        for v in get_args(alt)
        if isinstance(v, str)
    ]


def accepts(kind: Any, value: object) -> bool:
    """Return whether a value is of a type."""
    return any(_accepts_one(alternative, value) for alternative in _alternatives(kind))


def _accepts_one(kind: Any, value: object) -> bool:
    origin = get_origin(kind)
    if origin is Literal:
        return any(type(value) is type(allowed) and value == allowed for allowed in get_args(kind))
    if kind is Any:
        return True
    if kind is None:
        return value is None
    if kind is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, origin or kind)


def describe_type(kind: Any) -> str:
    """Return the text of a type: `'"eager" or "error"'`, `"int or None"`."""
    words: list[str] = []
    for alternative in _alternatives(kind):
        if get_origin(alternative) is Literal:
            words += [f'"{v}"' if isinstance(v, str) else repr(v) for v in get_args(alternative)]
        else:
            words.append(
                "None"
                if alternative is types.NoneType
                else getattr(alternative, "__name__", str(alternative))
            )
    return " or ".join(words)
