"""Reads a source tree without importing it: its modules, the imports between them, where each stands."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "packages" / "thunder-core" / "src"


@dataclass(frozen=True)
class Module:
    """One parsed file: its dotted name, its path, its syntax tree."""

    name: str
    path: Path
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether the file is a package's `__init__.py`."""
        return self.path.name == "__init__.py"


@dataclass(frozen=True, kw_only=True)
class Import:
    """One imported module: who imports what, on which line, in which function, whether for types alone."""

    importer: str
    target: str
    line: int
    function: str | None
    typing_only: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


def modules(source: Path) -> dict[str, Module]:
    """Parses every Python file below `source` (a directory of `sys.path`), keyed by dotted name."""
    found = {}
    for path in sorted(source.rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path, ast.parse(path.read_text(encoding="utf-8"), str(path)))
    return found


@functools.cache
def modules_of_core() -> dict[str, Module]:
    """Parse thunder-core, once in a run."""
    return modules(CORE)


def imports(module: Module, known: dict[str, Module]) -> list[Import]:
    """Every import statement of `module`, one record per imported module, relative ones resolved."""
    return [
        record
        for node, function, typing_only in _statements(module.tree)
        for record in _records(module, node, function, typing_only, known)
    ]


def all_imports(known: dict[str, Module]) -> list[Import]:
    """The imports of every module of a tree."""
    return [record for module in known.values() for record in imports(module, known)]


def _statements(
    node: ast.AST, function: str | None = None, typing_only: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, str | None, bool]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, function, typing_only
        elif isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _statements(child, child.name, typing_only)
        elif isinstance(child, ast.If) and ast.unparse(child.test).endswith("TYPE_CHECKING"):
            for part in child.body:
                yield from _statements(ast.Module([part], []), function, True)
            for part in child.orelse:
                yield from _statements(ast.Module([part], []), function, typing_only)
        elif not isinstance(child, ast.expr):  # which has no statements
            yield from _statements(child, function, typing_only)


def _records(
    module: Module,
    node: ast.Import | ast.ImportFrom,
    function: str | None,
    typing_only: bool,
    known: dict[str, Module],
) -> Iterator[Import]:
    for target in dict.fromkeys(_targets(module, node, known)):
        yield Import(
            importer=module.name, target=target, line=node.lineno, function=function, typing_only=typing_only
        )


def _targets(module: Module, node: ast.Import | ast.ImportFrom, known: dict[str, Module]) -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    base = node.module or ""
    if node.level:
        parents = module.name.split(".") if module.is_package else module.name.split(".")[:-1]
        parents = parents[: len(parents) - (node.level - 1)]
        base = ".".join([*parents, base] if base else parents)
    for alias in node.names:
        # `from package import module` imports the module; `from module import name` the module of the name.
        submodule = f"{base}.{alias.name}"
        yield submodule if submodule in known else base
