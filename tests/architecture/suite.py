"""Checks of the tests themselves, on their syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

NUMBERED = re.compile(r"test_[A-Za-z]\d+(_|$)")

#: the syntax tree of each file, by its path
Trees = Mapping[Path, ast.Module]


def trees(folder: Path) -> dict[Path, ast.Module]:
    """Parse the Python files of a folder, except programs in a newer Python's syntax."""
    paths = [path for path in sorted(folder.rglob("*.py")) if not path.stem.startswith("syntax_3")]
    return {path: ast.parse(path.read_text(encoding="utf-8"), str(path)) for path in paths}


def unnamed_errors(files: Trees) -> list[str]:
    """Return where ``pytest.raises`` neither matches the error's text nor keeps the error for assertions."""
    return [
        f"{path.name}:{call.lineno}: {ast.unparse(call)}"
        for path, tree in files.items()
        for function in _functions(tree)
        for call, bound in _raises(function)
        if not any(keyword.arg in ("match", "check") for keyword in call.keywords)
        if bound is None or not _is_read(function, bound)
    ]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    """Yield the functions of a file and of its classes, without those inside of functions."""
    for node in tree.body:
        for inner in node.body if isinstance(node, ast.ClassDef) else [node]:
            if isinstance(inner, ast.FunctionDef):
                yield inner


def _raises(function: ast.FunctionDef) -> Iterator[tuple[ast.Call, str | None]]:
    """Yield the calls of ``pytest.raises`` in a function, each with the name after ``as``."""
    bound = {
        id(item.context_expr): item.optional_vars.id
        for node in ast.walk(function)
        if isinstance(node, ast.With)
        for item in node.items
        if isinstance(item.optional_vars, ast.Name)
    }
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _is_pytest_raises(node.func):
            yield node, bound.get(id(node))


def _is_pytest_raises(function: ast.expr) -> bool:
    """Return whether an expression is `pytest.raises`."""
    match function:
        case ast.Attribute(ast.Name("pytest"), "raises"):
            return True
    return False


def _is_read(function: ast.FunctionDef, name: str) -> bool:
    """Return whether a function reads a variable."""
    return any(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in ast.walk(function)
    )


def numbered_names(files: Trees) -> list[str]:
    """Return the tests that are called by a number of some list, as ``test_m17_…`` is, and not in words."""
    return [
        f"{path.name}:{function.lineno}: {function.name}"
        for path, tree in files.items()
        for function in _functions(tree)
        if NUMBERED.match(function.name)
    ]
