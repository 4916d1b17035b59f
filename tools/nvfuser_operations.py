"""Writes the table of nvFuser's operations, which its recorder checks calls against.

    python tools/nvfuser_operations.py [LISTING]

Without an argument the operations are read from the installed `nvfuser_direct`; else from a listing, a text
with a line for each operation, `name: (a: TV, b: int = 0) -> TV || …`, where `||` separates the overloads,
and for names without parameters of their own `unary (…): abs acos …` and `binary (…): add …`.
"""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path

TABLE = Path(__file__).parents[1] / "packages/thunder-nvfuser/src/thunder_nvfuser/operations.py"
HEAD = '''"""The operations of nvfuser_direct 0.2.36, with the parameters of each overload.

A parameter with a default ends in `=`; those after `*` are given by name. tools/nvfuser_operations.py writes
the table.
"""

# ruff: noqa: E501

from typing import Final

__all__ = ["OPERATIONS"]

OPERATIONS: Final[dict[str, tuple[str, ...]]] = {
'''


def parameters(signature: str) -> str:
    """Return the names of the parameters of `(a: TV, b: int = 0) -> TV`, as `a, b=`."""
    inner = signature[signature.index("(") + 1 : signature.rindex(")", 0, _end(signature))]
    names = []
    for part in _split(inner):
        name = part.split(":")[0].strip()
        if name:
            names.append(f"{name}=" if "=" in part else name)
    return ", ".join(names)


def _end(signature: str) -> int:
    arrow = signature.rfind("->")
    return len(signature) if arrow < 0 else arrow


def _split(text: str) -> list[str]:
    """Split at commas that are in no bracket."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(<") - (character in "])>")
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def from_listing(text: str) -> dict[str, tuple[str, ...]]:
    """Return the operations of a listing."""
    table: dict[str, tuple[str, ...]] = {}
    for line in text.splitlines():
        group = re.match(r"(unary|binary) \(.*?\): (.*)", line)
        name, _, rest = line.partition(":")
        if group:
            table |= dict.fromkeys(group[2].split(), ("a",) if group[1] == "unary" else ("a, b",))
        elif rest.strip():
            overloads = re.sub(r"\(\+\d+ overloads\)", "", rest).split("||")
            table[name.strip()] = tuple(dict.fromkeys(map(parameters, overloads)))
    return table


def from_library() -> dict[str, tuple[str, ...]]:
    """Return the operations of the installed library, from the docstrings of its functions."""
    operations = import_module("nvfuser_direct").ops
    table: dict[str, tuple[str, ...]] = {}
    for name in sorted(vars(operations)):
        text = getattr(operations, name).__doc__ or ""
        found = re.findall(rf"^(?:\d+\. )?{name}\((?!\*args).*$", text, re.MULTILINE)
        if found:
            table[name] = tuple(dict.fromkeys(parameters(signature) for signature in found))
    return table


def main(arguments: list[str]) -> None:
    """Write the table."""
    table = from_listing(Path(arguments[0]).read_text()) if arguments else from_library()
    lines = []
    for name, overloads in sorted(table.items()):
        shown = ", ".join(f'"{overload}"' for overload in overloads) + ("," if len(overloads) == 1 else "")
        lines.append(f'    "{name}": ({shown}),\n')
    TABLE.write_text(HEAD + "".join(lines) + "}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
