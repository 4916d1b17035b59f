"""Facts about operators stand in their rows: no other module of core has a list of operators' names.

An operator that a package adds is in no such list, and would be the exception to what the list is for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from architecture.source import Module, modules_of_core
from thunder.ops.operator import all_rows

#: packages that declare rows, their formulas and their decompositions
_OF_ROWS = ("thunder.torch", "thunder.ops.prims")
_PREFIXES = ("torch.", "prims.", "ltorch.")
#: the least number of names that is a list
_LEAST = 3

#: modules that have lists → how many names are in them: the numbers may only become smaller
KNOWN = {
    # statements of prologues
    "thunder.frontend.objects.object_table": 4,
    "thunder.frontend.prologue_statements": 3,
    # names of Python's operators
    "thunder.frontend.natives.native_calls": 22,
    # comparisons with a bound, differences between versions of torch
    "thunder.base.torch_versions": 4,
    "thunder.ops.constant_folding": 4,
}

IDS = frozenset(row.id for row in all_rows() if row.id.startswith(_PREFIXES))
LAST_PARTS = frozenset(operator_id.split(".", 1)[1] for operator_id in IDS)


def _path(node: ast.expr) -> str:
    """Return ``torch.add`` for the expression, or an empty text."""
    if isinstance(node, ast.Attribute):
        return f"{_path(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _makes_ids(tree: ast.AST) -> bool:
    """Return whether a module has an ``f"torch.{name}"``."""
    starts = (n.values[0] for n in ast.walk(tree) if isinstance(n, ast.JoinedStr) and len(n.values) > 1)
    return any(isinstance(s, ast.Constant) and str(s.value).startswith(_PREFIXES) for s in starts)


def _names(node: ast.AST, known: frozenset[str]) -> Iterator[str]:
    """Yield the operators that are named in a node."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from (word for word in part.value.split() if word in known)
        elif isinstance(part, ast.Attribute) and _path(part) in IDS:
            yield _path(part)


def _collections(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the outermost literal collections, and texts of several words."""
    for child in ast.iter_child_nodes(tree):
        is_text = isinstance(child, ast.Constant) and isinstance(child.value, str)
        if isinstance(child, ast.Set | ast.List | ast.Tuple | ast.Dict) or is_text:
            yield child
        elif not isinstance(child, ast.Expr) or not isinstance(child.value, ast.Constant):  # no docstring
            yield from _collections(child)


def names_in_lists(tree: ast.AST) -> int:
    """Return how many names are in the lists of operators of a module."""
    known = IDS | LAST_PARTS if _makes_ids(tree) else IDS
    counts = (len(set(_names(collection, known))) for collection in _collections(tree))
    return sum(count for count in counts if count >= _LEAST)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('A = {"torch.add", "torch.mul", "prims.neg"}', 3),
        ('A = frozenset(f"torch.{name}" for name in ("add", "mul", "sub", "neg"))', 4),
        ("A = (torch.add, torch.mul, torch.sub)", 3),
        ('A = "torch.add torch.mul torch.sub".split()', 3),
        ('A = {"torch.add": 1, "torch.mul": 2, "torch.sub": 3}', 3),
        ('A = {"torch.add", "torch.mul"}', 0),
        ('A = ("add", "mul", "sub")', 0),
    ],
)
def test_a_list_is_found(text: str, count: int) -> None:
    assert names_in_lists(ast.parse(text)) == count


def _lists(core: dict[str, Module]) -> dict[str, int]:
    others = {name: module for name, module in core.items() if not name.startswith(_OF_ROWS)}
    counts = {name: names_in_lists(module.tree) for name, module in others.items()}
    return {name: count for name, count in counts.items() if count}


def test_no_other_module_of_core_lists_operators() -> None:
    assert _lists(modules_of_core()) == KNOWN
