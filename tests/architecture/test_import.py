"""`import thunder` by itself: quiet, light, and exactly the names that it promises."""

from __future__ import annotations

import ast
import json
import sys
from typing import Any

import pytest

import thunder
from architecture.source import CORE
from new_processes import run_python

PROGRAM = """
import json, sys, warnings
import torch
before = set(sys.modules)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import thunder
print(json.dumps({
    "new": sorted({name.split(".")[0] for name in set(sys.modules) - before}),
    "torch": sorted(name for name in set(sys.modules) - before if name.startswith("torch.")),
    "warnings": [str(warning.message) for warning in caught],
    "cuda": torch.cuda.is_initialized(),
}))
"""


@pytest.fixture(scope="module")
def fresh_import() -> dict[str, Any]:
    """What `import thunder` does to a process that has imported torch and nothing else."""
    run = run_python("-c", PROGRAM, check=True)
    assert run.stderr == "", "import thunder writes to standard error"
    assert run.stdout.count("\n") == 1, "import thunder writes to standard output"
    return json.loads(run.stdout)


def test_import_gives_no_warning(fresh_import):
    assert fresh_import["warnings"] == []


def test_import_brings_pluggy_and_no_other_library(fresh_import):
    libraries = set(fresh_import["new"]) - sys.stdlib_module_names - {"torch"}
    assert libraries <= {"thunder", "pluggy"}


def test_import_does_not_load_the_compilers_of_torch(fresh_import):
    heavy = (
        "torch._dynamo",
        "torch._inductor",
        "torch._functorch.aot_autograd",
        "torch.onnx",
        "torch.fx.experimental",
    )
    assert [name for name in fresh_import["torch"] if name.startswith(heavy)] == []


def test_import_leaves_cuda_alone(fresh_import):
    assert fresh_import["cuda"] is False


def test_every_name_of_all_exists():
    assert len(set(thunder.__all__)) == len(thunder.__all__), "a name is listed twice"
    assert [name for name in thunder.__all__ if not hasattr(thunder, name)] == []


def test_no_public_name_is_forgotten():
    """A name that the package's own file binds is exported, or a module, or used in that file."""
    tree = ast.parse((CORE / "thunder" / "__init__.py").read_text(encoding="utf-8"))
    bound = {name for node in tree.body for name in _bound(node) if name[0] not in "_*"}
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and type(node.ctx) is ast.Load}
    modules = {name for name in bound if type(getattr(thunder, name, None)) is type(sys)}
    assert bound - modules - used - set(thunder.__all__) - {"annotations"} == set()


def _bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.Import(names=aliases) | ast.ImportFrom(names=aliases):
            return [(alias.asname or alias.name).split(".")[0] for alias in aliases]
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
        case _:
            return []
