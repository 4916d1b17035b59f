"""Rules on names and texts: docstrings, module names, words that have no place in the tree."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path

from architecture.source import Module

# Module names that say nothing of their subject. `core/utils` is a public path: imports and nothing else.
EMPTY_NAMES = frozenset({"utils", "util", "common", "helpers", "misc"})
DOCUMENTED_PATHS = frozenset({"thunder.core.utils"})

# Names of first-party plugins and of the libraries behind them. Core knows none of them; the file that says
# which package to install for a documented path is the one exception.
PLUGIN_NAMES = re.compile(
    r"thunder[-_](?:bnb|onednn|store|te|distributed|benchmarks|testing|migration)\b"
    r"|thunder-transforms"  # thunder_transforms is a hook
    r"|nvfuser|inductor|triton|bitsandbytes|transformer_engine",
    re.IGNORECASE,
)
#: tables of names that packages have
TABLES_OF_NAMES = frozenset({"thunder.plugins.not_installed"})

# What a reader elsewhere cannot follow: directories of one machine, marks of unfinished work.
FOREIGN_TEXT = {
    "an absolute path of one machine": re.compile(
        r"(?<![\w.~])/(?:home|Users|root|work|tmp|opt|mnt|srv)/[\w.]"
    ),
    "a mark of unfinished work": re.compile(r"\b(?:TODO|FIXME|XXX|HACK)\b"),
}
DOCUMENT_NAME = re.compile(r"\b[A-Z][A-Z_]+\.md\b")


# Functions here bear the names of CPython's opcodes, which the documentation of `dis` explains.
OPCODES = "thunder.interpreter.handlers."


def undocumented(known: Mapping[str, Module]) -> list[str]:
    """Modules, and public classes and functions at the top of a module, that have no docstring."""
    missing = []
    for name, module in known.items():
        if (
            any(part.startswith("_") and part != "__main__" for part in name.split("."))
            or not module.tree.body
        ):
            continue
        if ast.get_docstring(module.tree) is None:
            missing.append(name)
        missing += [
            f"{name}.{node.name}:{node.lineno}"
            for node in _public(module.tree)
            if _needs_docstring(node) and not (name.startswith(OPCODES) and node.name.isupper())
        ]
    return missing


def _public(tree: ast.Module) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef]:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    return [node for node in tree.body if isinstance(node, kinds) and not node.name.startswith("_")]


def _needs_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> bool:
    overload = any(ast.unparse(decorator).endswith("overload") for decorator in node.decorator_list)
    return not overload and ast.get_docstring(node) is None


def oversized(known: Mapping[str, Module], lines_of_file: int, lines_of_function: int) -> list[str]:
    """Files and functions that hold more than one subject, judged by their length."""
    files = {
        name: len(module.path.read_text(encoding="utf-8").splitlines()) for name, module in known.items()
    }
    functions = {
        f"{name}.{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for name, module in known.items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    long_files = [name for name, lines in files.items() if lines > lines_of_file]
    return long_files + [name for name, lines in functions.items() if lines > lines_of_function]


def empty_module_names(known: Iterable[str]) -> list[str]:
    """Modules called by a name that fits any content."""
    return [name for name in known if name.rpartition(".")[2] in EMPTY_NAMES and name not in DOCUMENTED_PATHS]


# Names of several modules that have one subject: primitives, rows and gradient rules of the same operators.
# A name of `core` or `executors.passes` is a public path.
SHARED_NAMES = {
    "attention", "binary", "casts", "cat_split", "conv", "creation", "indexing", "linalg", "loss", "nn",
    "norm", "pool", "random", "rearrangement", "reduction", "shape", "softmax", "ternary", "unary",
}  # fmt: skip
OF_OPERATORS = ("thunder.ops.prims.", "thunder.torch.rows.", "thunder.torch.gradients.")
PUBLIC_PATHS = ("thunder.core.", "thunder.executors.passes", "thunder.commands.", "thunder.transforms")


def ambiguous_module_names(known: Iterable[str]) -> list[str]:
    """List modules that share their last name with a module of another subject."""
    by_name: dict[str, list[str]] = {}
    for name in known:
        if not name.startswith(PUBLIC_PATHS):
            by_name.setdefault(name.rpartition(".")[2], []).append(name)
    return [
        " and ".join(sorted(group))
        for last, group in by_name.items()
        if len(group) > 1
        and not (last in SHARED_NAMES and all(name.startswith(OF_OPERATORS) for name in group))
    ]


def swallowed_errors(known: Mapping[str, Module]) -> list[str]:
    """Handlers that catch everything and say nothing."""
    return [
        f"{name}:{node.lineno}"
        for name, module in known.items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in {"Exception", "BaseException"})
        and all(isinstance(statement, ast.Pass | ast.Continue) for statement in node.body)
    ]


def silent_asserts(known: Mapping[str, Module]) -> list[str]:
    """Assertions without a message."""
    return [
        f"{name}:{node.lineno}"
        for name, module in known.items()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Assert) and node.msg is None
    ]


def plugin_names(known: Mapping[str, Module]) -> list[str]:
    """Lines of core that name a plugin or the library behind one."""
    return [
        f"{name}:{number}: {line.strip()}"
        for name, module in known.items()
        if name not in TABLES_OF_NAMES
        for number, line in enumerate(module.path.read_text(encoding="utf-8").splitlines(), 1)
        if PLUGIN_NAMES.search(line)
    ]


#: functions that write the `__dict__` of an object, and what that object is; none is a proxy
DICT_WRITERS = frozenset(
    {
        ("thunder.base.errors", "error"),
        ("thunder.frontend.custom_gradients.eager_backward", "self.context"),
        ("thunder.frontend.epilogue.reconstruction", "new"),
        ("thunder.ir.dotted_paths", "module"),
        ("thunder.wrappers.dynamo_boundary", "function"),
        ("thunder.wrappers.state_dicts", "state"),
    }
)
_DICT_CHANGES = frozenset({"update", "setdefault", "pop", "popitem", "clear", "__setitem__"})


def undeclared_attributes(known: Mapping[str, Module]) -> list[str]:
    """Writes to the `__dict__` of an object: attributes that its class does not declare."""
    return [
        f"{name}:{node.lineno} writes to the __dict__ of {ast.unparse(owner)}"
        for name, module in known.items()
        for node in ast.walk(module.tree)
        if (owner := _dict_owner(node)) is not None and (name, ast.unparse(owner)) not in DICT_WRITERS
    ]


def _dict_owner(node: ast.AST) -> ast.expr | None:
    """The object to whose `__dict__` a node writes, or None."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
        return _of_dict(node.value)
    if isinstance(node, ast.Attribute) and node.attr in _DICT_CHANGES:
        return _of_dict(node.value)
    return None


def _of_dict(node: ast.expr) -> ast.expr | None:
    """`x` of the expressions `x.__dict__` and `vars(x)`."""
    if isinstance(node, ast.Attribute) and node.attr == "__dict__":
        return node.value
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "vars" and node.args:
        return node.args[0]
    return None


def texts(
    root: Path, patterns: tuple[str, ...] = ("*.py", "*.md", "*.toml", "*.txt", "run")
) -> dict[Path, str]:
    """The text files of a checkout: what git tracks or would add, or without git everything not hidden."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listing.returncode == 0:
        paths = [root / name for name in listing.stdout.split("\0") if name]
    else:
        paths = [path for path in root.rglob("*") if not any(part.startswith(".") for part in path.parts)]
    chosen = [path for path in paths if path.is_file() and any(path.match(pattern) for pattern in patterns)]
    return {path: path.read_text(encoding="utf-8") for path in sorted(chosen)}


def foreign_text(files: Mapping[Path, str]) -> list[str]:
    """Lines with something that only has a meaning on one machine or for unfinished work."""
    return [
        f"{path}:{number}: {what}: {line.strip()}"
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in FOREIGN_TEXT.items()
        if pattern.search(line)
    ]


def absent_documents(files: Mapping[Path, str]) -> list[str]:
    """Mentions of a document (`NAME.md`) that is no file of the tree."""
    present = {path.name for path in files}
    return [
        f"{path}:{number}: {name}"
        for path, text in files.items()
        for number, line in enumerate(text.splitlines(), 1)
        for name in DOCUMENT_NAME.findall(line)
        if name not in present
    ]
