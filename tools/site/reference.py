"""What the reference shows of a public module."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
import types
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from sphinx.pycode import ModuleAnalyzer
from tools.public_names import names_of, public_modules

from thunder.core.symbol import Symbol

#: the longest value of a constant that is shown, in characters
_LONGEST = 100


@dataclass(frozen=True)
class Constant:
    """A public name that is neither a function nor a class: its value, if it is short, and its sentence."""

    name: str
    value: str
    text: str


@dataclass(frozen=True)
class Contents:
    """The public names of a module: those that have docstrings in their source, and constants."""

    members: list[str]
    constants: list[Constant]


def show_code(lines: list[str]) -> None:
    """Make the indented blocks of a docstring blocks of code, in place: Python where they are that."""
    number = 1
    while number < len(lines):
        if not _begins_block(lines, number):
            number += 1
            continue
        end = next(
            (i for i in range(number, len(lines)) if lines[i] and not lines[i].startswith("    ")), len(lines)
        )
        language = "python" if _is_python("\n".join(lines[number:end])) else "text"
        lines[number:number] = [f".. code-block:: {language}", ""]
        number = end + 2


def _begins_block(lines: list[str], number: int) -> bool:
    """Return whether a paragraph is indented below one that is neither, nor a directive or a list."""
    if not lines[number].startswith("    ") or lines[number - 1].strip():
        return False
    before = next((line for line in reversed(lines[:number]) if line.strip()), "-")
    return not re.match(r"\s|[-*.:]|\d+\.|.*::$", before)


def _is_python(text: str) -> bool:
    try:
        ast.parse(textwrap.dedent(text))
    except SyntaxError:
        return False
    return True


def contents() -> dict[str, Contents]:
    """Return the contents of each public module; modules among them have pages of their own."""
    return {module: _contents(import_module(module)) for module in public_modules()}


def _contents(module: types.ModuleType) -> Contents:
    documented = {name for _, name in ModuleAnalyzer.for_module(module.__name__).find_attr_docs()}
    found = Contents([], [])
    for name in names_of(module):
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            continue
        if name in documented or inspect.isclass(value) or inspect.isroutine(value):
            found.members.append(name)
        else:
            found.constants.append(_constant(name, value))
    return found


def _constant(name: str, value: Any) -> Constant:
    """Describe a constant: by the docstring of what it calls, or its own, else by its type."""
    shown, described = repr(value), value.meta if isinstance(value, Symbol) else value
    text = vars(described).get("__doc__") if hasattr(described, "__dict__") else None
    if " at 0x" in shown or len(shown) > _LONGEST or "\n" in shown:
        shown = ""
    if not text:
        text = f"Of the type `{type(value).__name__}`."
    return Constant(name, shown, " ".join(text.partition("\n\n")[0].split()))
