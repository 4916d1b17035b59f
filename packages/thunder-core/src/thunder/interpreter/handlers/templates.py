"""Template strings (PEP 750)."""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from thunder.interpreter.frame import Frame
from thunder.interpreter.version_differences import templatelib


def BUILD_INTERPOLATION(frame: Frame, stack: list[Any], arg: tuple[str | None, bool]) -> None:
    """Stack: the value, the text of its expression, and the format specification if it has one."""
    conversion, has_specification = arg
    specification = stack.pop() if has_specification else ""
    expression = stack.pop()
    stack[-1] = templatelib.Interpolation(stack[-1], expression, conversion, specification)


def BUILD_TEMPLATE(frame: Frame, stack: list[Any], arg: None) -> None:
    """Stack: the strings, and the interpolations between them."""
    interpolations = stack.pop()
    strings = stack[-1]
    parts = [part for pair in zip_longest(strings, interpolations) for part in pair]
    stack[-1] = templatelib.Template(*parts[:-1])
