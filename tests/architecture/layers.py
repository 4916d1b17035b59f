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
        ("thunder.base.lazy_modules", "submodule"),  # so do those of the packages below it
        ("thunder.base.public_names", "resolve"),  # the table of names gives objects by their paths
        ("thunder.base.public_names", "_has"),  # an error looks through the public modules
        ("thunder.interpreter.policy", "import_module"),  # runs the program's own import statements
        ("thunder.examine.graph", "_digraph"),  # graphviz, a library that need not be installed
        ("thunder.base.optional_modules", "optional_module"),  # a library that need not be installed
        ("thunder.plugins.compatibility", "_unmet"),  # packaging, for plugins that are installed
        ("thunder.plugins.specs", "load_target"),  # a plugin says by name where its executor is
    }
)


@dataclass(frozen=True)
class Layers:
    """The layer of each folder and each single file directly under `thunder`; 0 is the lowest layer."""

    rows: Mapping[str, int]

    def of(self, module: str) -> int | None:
        """Return the layer of the folder that a module is in, or None for a folder that the table lacks."""
        return self.rows.get(folder_of(module))


def folder_of(module: str) -> str:
    """Return the folder or file directly under `thunder` that a module is in; `__init__` for `thunder`."""
    return module.split(".")[1] if "." in module else "__init__"


def read_layers(document: Path) -> Layers:
    """Read the table whose first column head is `layer` from a markdown document.

    Raises ValueError if there is no such table, if a row names something below a folder, or a folder twice.
    """
    rows: dict[str, int] = {}
    inside = False
    for line in document.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|"):
            inside = False
        elif cells[0] == "layer":
            inside = True
        elif inside and cells[0].isdigit():
            for name in re.findall("`([^`]+)`", cells[1]):
                folder = name.removesuffix("/")
                if "/" in folder or folder in rows:
                    raise ValueError(f"{document}: {name!r} is not a folder, or has two layers")
                rows[folder] = int(cells[0])
    if not rows:
        raise ValueError(f"{document} has no table with a first column named 'layer'")
    return Layers(rows)


def modules_without_layer(known: Mapping[str, Module], layers: Layers) -> list[str]:
    """List modules in folders that the table does not name."""
    return [name for name in known if layers.of(name) is None]


def folders_without_modules(known: Mapping[str, Module], layers: Layers) -> list[str]:
    """List folders that the table names and the tree lacks."""
    return sorted(set(layers.rows) - {folder_of(name) for name in known})


def imports_not_downward(known: dict[str, Module], layers: Layers) -> list[str]:
    """List imports of another folder of the same layer or of a higher one.

    An import for types alone counts: it is knowledge of that folder all the same.
    """
    return [
        f"{record} (layer {layers.of(record.importer)} → {layers.of(record.target)})"
        for record in all_imports(known)
        if _is_own(record.target)
        and folder_of(record.target) != folder_of(record.importer)
        and _rank(layers, record.target) >= _rank(layers, record.importer)
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


#: parts of the interpreter that decode byte code, or say what an instruction is
_OF_BYTE_CODE = ("decode", "opcode_tables", "handlers", "coming_uses")
#: modules that ask what the program does next: of a look-up in ``sys.modules``, and of a loop over a range
MAY_READ_AHEAD: frozenset[tuple[str, str]] = frozenset(
    {
        ("thunder.frontend.attribute_policy", "thunder.interpreter.coming_uses"),
        ("thunder.frontend.lookasides.ranges", "thunder.interpreter.coming_uses"),
    }
)


def readers_of_byte_code(known: dict[str, Module], allowed: Collection[tuple[str, str]]) -> list[str]:
    """Imports of the parts of the interpreter that know instructions, from outside of it.

    A value is known by its use: what a rule takes from the next instruction fails for a value in a variable.
    """
    return [
        str(record)
        for record in all_imports(known)
        if folder_of(record.importer) != "interpreter"
        and any(f"{record.target}.".startswith(f"thunder.interpreter.{part}.") for part in _OF_BYTE_CODE)
        and (record.importer, record.target) not in allowed
    ]


def other_libraries(known: dict[str, Module], folder: str) -> list[str]:
    """List imports of a folder that leave both thunder and the standard library."""
    return [
        str(record)
        for record in all_imports(known)
        if folder_of(record.importer) == folder
        and not _is_own(record.target)
        and not _is_standard(record.target)
    ]


def _is_standard(module: str) -> bool:
    return module.split(".")[0] in sys.stdlib_module_names


def undeclared_dependencies(known: dict[str, Module], project: Path) -> list[str]:
    """List imports of libraries that the package does not require.

    Those of an extra may be imported for types, or in one of the functions that may import late.
    """
    table = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    declared = _names(table["dependencies"])
    extras = {name: _names(libraries) for name, libraries in table.get("optional-dependencies", {}).items()}
    return [str(record) for record in all_imports(known) if not _is_declared(record, declared, extras)]


def _names(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in requirements}


def _is_declared(record: Import, declared: set[str], extras: Mapping[str, set[str]]) -> bool:
    library = record.target.split(".")[0]
    if _is_own(record.target) or _is_standard(record.target) or library in declared:
        return True
    optional = record.typing_only or (record.importer, record.function) in MAY_IMPORT_LATE
    return optional and any(library in libraries for libraries in extras.values())
