"""The layer table of ARCHITECTURE.md, and the rules on imports that it and this file state."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from architecture.source import Import, Module, all_imports

# Functions that may import when they run, as (module, function). Each stands for a rule of its own: a package
# attribute that loads on first touch, a name that only the running program or an installed plugin gives, or a
# library that is slow to import and seldom needed.
MAY_IMPORT_LATE: frozenset[tuple[str, str]] = frozenset(
    {
        ("thunder", "__getattr__"),  # modules of the package load on first touch
        ("thunder.core.lazy", "submodule"),  # so do those of the packages below it
        ("thunder.core.interpreter.policy", "import_module"),  # runs the program's own import statements
        ("thunder.core.autograd.residuals", "graph_library"),  # graph algorithms, for programs with gradients
        ("thunder.compiler.terminal", "rich_module"),  # rich, a library that need not be installed
        ("thunder.plugins.specs", "load_target"),  # a plugin says by name where its executor is
    }
)


@dataclass(frozen=True)
class Layers:
    """Which layer (0 is the lowest) each module stands in; prefixes are given below the package `thunder`."""

    rows: tuple[tuple[str, int], ...]

    def of(self, module: str) -> int | None:
        """The layer of a module, by the longest prefix that names it or a package around it, or None."""
        best: tuple[int, int] | None = None
        for prefix, layer in self.rows:
            exact = prefix.endswith("__init__")
            name = "thunder" if prefix == "__init__" else f"thunder.{prefix.removesuffix('.__init__')}"
            if module == name or (not exact and module.startswith(f"{name}.")):
                best = max(best or (0, 0), (len(name), layer))
        return best[1] if best else None


def read_layers(document: Path) -> Layers:
    """Reads the table whose first column head is `layer` from a markdown document."""
    rows: list[tuple[str, int]] = []
    inside = False
    for line in document.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == "layer":
            inside = True
        elif inside and cells[0].isdigit():
            rows += [
                (name.strip("/").replace("/", "."), int(cells[0]))
                for name in re.findall("`([^`]+)`", cells[1])
            ]
    if not rows:
        raise ValueError(f"{document} has no table with a first column named 'layer'")
    return Layers(tuple(rows))


def modules_without_layer(known: Mapping[str, Module], layers: Layers) -> list[str]:
    """Modules that the table does not name."""
    return [name for name in known if layers.of(name) is None]


def upward_imports(known: dict[str, Module], layers: Layers) -> list[str]:
    """Imports of a higher layer. One for types alone counts: it is knowledge of that layer all the same."""
    return [
        f"{record} (layer {layers.of(record.importer)} → {layers.of(record.target)})"
        for record in all_imports(known)
        if _is_own(record.target) and _rank(layers, record.target) > _rank(layers, record.importer)
    ]


def _rank(layers: Layers, module: str) -> int:
    layer = layers.of(module)
    return -1 if layer is None else layer


def _is_own(module: str) -> bool:
    return module == "thunder" or module.startswith("thunder.")


def import_cycles(known: dict[str, Module]) -> list[str]:
    """Groups of modules that reach each other through imports that run.

    The groups are the strongly connected components of the import graph (Tarjan, SIAM J. Comput. 1(2), 1972).
    """
    graph: dict[str, list[str]] = {name: [] for name in known}
    for record in all_imports(known):
        if not record.typing_only and record.target in known:
            graph[record.importer].append(record.target)
    return [
        " ↔ ".join(sorted(group))
        for group in _components(graph)
        if len(group) > 1 or group[0] in graph[group[0]]
    ]


def _components(graph: Mapping[str, Collection[str]]) -> list[list[str]]:
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for target in graph[node]:
            if target not in index:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], index[target])
        if low[node] == index[node]:
            cut = stack.index(node)
            groups.append(stack[cut:])
            del stack[cut:]

    for node in graph:
        if node not in index:
            visit(node)
    return groups


def late_imports(known: dict[str, Module], allowed: Collection[tuple[str, str]]) -> list[str]:
    """Imports inside functions, by statement or by call, outside the functions that `allowed` lists."""
    by_statement = [
        f"{record} inside {record.function}()"
        for record in all_imports(known)
        if record.function and (record.importer, record.function) not in allowed
    ]
    by_call = [
        f"{name}:{call.lineno} calls {ast.unparse(call.func)}() inside {function.name}()"
        for name, module in known.items()
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and (name, function.name) not in allowed
        for call in ast.walk(function)
        if isinstance(call, ast.Call) and ast.unparse(call.func) in IMPORTING_CALLS
    ]
    return by_statement + by_call


IMPORTING_CALLS = frozenset(
    {"__import__", "import_module", "importlib.import_module", "importlib.__import__"}
)


def imports_of_executors(known: dict[str, Module]) -> list[str]:
    """Imports of `thunder.executors.*` from outside it: the built-in executors are found by hooks alone."""
    return [
        str(record)
        for record in all_imports(known)
        if record.target.startswith("thunder.executors.")
        and not record.importer.startswith("thunder.executors")
    ]


def imports_between(known: dict[str, Module], importer: str, allowed: Layers, highest: int) -> list[str]:
    """Imports that leave the package `importer` for a layer above `highest` or for another library."""
    return [
        str(record)
        for record in all_imports(known)
        if _within(record.importer, importer)
        and not _within(record.target, importer)
        and not _is_standard(record.target)
        and not (_is_own(record.target) and 0 <= _rank(allowed, record.target) <= highest)
    ]


def _within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def _is_standard(module: str) -> bool:
    return module.split(".")[0] in sys.stdlib_module_names


def undeclared_dependencies(known: dict[str, Module], project: Path) -> list[str]:
    """Imports of libraries that the package does not ask for; `thunder.testing` may use its extra."""
    table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    declared = _names(table["dependencies"])
    testing = declared | _names(table.get("optional-dependencies", {}).get("testing", []))
    return [str(record) for record in all_imports(known) if not _is_declared(record, declared, testing)]


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in requirements}


def _is_declared(record: Import, declared: set[str], testing: set[str]) -> bool:
    if _is_own(record.target) or _is_standard(record.target):
        return True
    return record.target.split(".")[0] in (
        testing if _within(record.importer, "thunder.testing") else declared
    )
