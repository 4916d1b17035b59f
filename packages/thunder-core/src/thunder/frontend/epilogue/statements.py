"""Statements of prologues and epilogues: lines of Python with the objects that they name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from thunder.base.tags import OpTags
from thunder.ir.literals import Names
from thunder.ir.symbol import BoundSymbol
from thunder.ops.prims.declaration import primitive


def _no_result(lines: Sequence[str], objects: Mapping[str, Any]) -> None:
    """The meta function of a statement without result."""


def _print(bsym: BoundSymbol, names: Names) -> list[str]:
    lines, objects = bsym.args
    for name, value in objects.items():
        names.bind(name, value)
    return list(lines)


python_lines = primitive("python_lines", _no_result, python_printer=_print, tags=(OpTags.DONT_DCE,))


def statement(*lines: str, **objects: Any) -> BoundSymbol:
    """Lines of Python, and the objects that they name, into which no pass looks."""
    return python_lines.bind(lines, MappingProxyType(objects), output=None)
