"""Structural pattern matching (PEP 634)."""

from __future__ import annotations

from typing import Any

from thunder.interpreter.frame import Frame
from thunder.interpreter.lookup import is_a, optional_attribute
from thunder.interpreter.policy import MISSING
from thunder.interpreter.version_differences import CLASS_PATTERN_NOUN

# Flags of types, from Include/object.h.
_SEQUENCE = 1 << 5
_MAPPING = 1 << 6
_MATCH_SELF = 1 << 22


def MATCH_MAPPING(frame: Frame, stack: list[Any], arg: None) -> None:
    stack.append(bool(type(stack[-1]).__flags__ & _MAPPING))


def MATCH_SEQUENCE(frame: Frame, stack: list[Any], arg: None) -> None:
    stack.append(bool(type(stack[-1]).__flags__ & _SEQUENCE))


def MATCH_KEYS(frame: Frame, stack: list[Any], arg: None) -> None:
    """Stack: subject, class, names of keyword patterns; push the attributes, or None."""
    subject, keys = stack[-2], stack[-1]
    policy = frame.machine.policy
    absent = object()
    seen: set[Any] = set()
    values = []
    if keys:
        get = policy.load_attr(subject, "get")
        for key in keys:
            if key in seen:
                raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
            seen.add(key)
            value = policy.call(get, (key, absent), {})
            if value is absent:
                stack.append(None)
                return
            values.append(value)
    stack.append(tuple(values))


def MATCH_CLASS(frame: Frame, stack: list[Any], count: int) -> None:
    """Stack: subject, class, names of keyword patterns; push the attributes, or None."""
    names = stack.pop()
    cls = stack.pop()
    stack[-1] = _match_class(frame, stack[-1], cls, count, names)


def _match_class(frame: Frame, subject: Any, cls: Any, count: int, names: tuple[str, ...]) -> Any:
    if not is_a(cls, type):
        raise TypeError(f"called match pattern must be a {CLASS_PATTERN_NOUN}")
    if not frame.machine.policy.call(isinstance, (subject, cls), {}):
        return None
    values = []
    if count:
        positional = _positional_names(frame, cls, count)
        if positional is None:
            values.append(subject)
            names = names if count == 1 else ()
        else:
            names = (*positional, *names)
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        value = optional_attribute(frame.machine, subject, name)
        if value is MISSING:
            return None
        values.append(value)
    return tuple(values)


def _positional_names(frame: Frame, cls: type, count: int) -> tuple[str, ...] | None:
    """Return the attributes of positional patterns; None if the subject itself matches."""
    match_args = optional_attribute(frame.machine, cls, "__match_args__")
    matches_self = False
    if match_args is MISSING:
        matches_self = bool(cls.__flags__ & _MATCH_SELF)
        match_args = ()
    elif not is_a(match_args, tuple):
        raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type(match_args).__name__})")
    allowed = 1 if matches_self else len(match_args)
    if allowed < count:
        plural = "" if allowed == 1 else "s"
        raise TypeError(f"{cls.__name__}() accepts {allowed} positional sub-pattern{plural} ({count} given)")
    if matches_self:
        return None
    for name in match_args[:count]:
        if not is_a(name, str):
            raise TypeError(f"__match_args__ elements must be strings (got {type(name).__name__})")
    names: tuple[str, ...] | None = match_args[:count]
    return names
