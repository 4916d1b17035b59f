"""Checks of the tests themselves, on their syntax trees."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

NUMBERED = re.compile(r"test_[A-Za-z]\d+(_|$)")

#: the syntax tree of each file, by its path
Trees = Mapping[Path, ast.Module]

#: folder of tests → folder of the source, below `packages`; a folder that is not here has its name in core
MIRRORED = {
    "autotune": "thunder-autotune/src/thunder_autotune",
    "benchmarks": "thunder-benchmarks/src/thunder_benchmarks",
    "bnb": "thunder-bnb/src/thunder_bnb",
    "distributed": "thunder-distributed/src/thunder_distributed",
    "dynamo": "thunder-inductor/src/thunder_inductor/dynamo",
    "inductor": "thunder-inductor/src/thunder_inductor",
    "migration": "thunder-migration/src/thunder_migration",
    "nvfuser": "thunder-nvfuser/src/thunder_nvfuser",
    "onednn": "thunder-onednn/src/thunder_onednn",
    "bisecting": "thunder-bisect/src/thunder_bisect",
    "report": "thunder-report/src/thunder_report",
    "store": "thunder-store/src/thunder_store",
    "te": "thunder-te/src/thunder_te",
    "testing": "thunder-testing/src/thunder_testing",
    "torch_language": "thunder-core/src/thunder/torch",  # `import torch` would find a folder of this name
    "transforms": "thunder-transforms/src/thunder_transforms",
    "triton_executor": "thunder-triton/src/thunder_triton",  # as would `import triton`
    "triton_executor/compiled": "thunder-triton/src/thunder_triton",
    "triton_executor/interpreted": "thunder-triton/src/thunder_triton",
}

#: folders of tests about no folder of the source: rules of the repository, and what many of them do together
ACROSS = {
    "architecture",
    "documents",
    "errors",
    "examples",
    "models",
    "release",
    "soak",
    "soundness",
    "symbolic",
}


def without_source(tests: Path, packages: Path) -> list[str]:
    """Return the folders with tests that mirror no folder of the source."""
    folders = sorted({path.parent.relative_to(tests) for path in tests.rglob("test_*.py")})
    return [
        folder.as_posix()
        for folder in folders
        if folder.parts and folder.parts[0] not in ACROSS and not _source_of(folder, packages).is_dir()
    ]


def _source_of(folder: Path, packages: Path) -> Path:
    """Return the folder of the source that a folder of tests mirrors, whether it exists or not."""
    for parent in (folder, *folder.parents):
        if parent.as_posix() in MIRRORED:
            return packages / MIRRORED[parent.as_posix()] / folder.relative_to(parent)
    return packages / "thunder-core" / "src" / "thunder" / folder


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
