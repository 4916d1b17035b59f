"""Imports between the modules of thunder-core go the way ARCHITECTURE.md says."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from architecture import layers
from architecture.source import CORE, ROOT, Module, modules_of_core


@pytest.fixture(scope="module")
def core() -> dict[str, Module]:
    return modules_of_core()


@pytest.fixture(scope="module")
def table() -> layers.Layers:
    return layers.read_layers(ROOT / "ARCHITECTURE.md")


def test_every_module_has_a_layer(core, table):
    assert layers.modules_without_layer(core, table) == []


def test_every_folder_of_the_table_exists(core, table):
    assert layers.folders_without_modules(core, table) == []


def test_a_folder_imports_only_folders_of_lower_layers(core, table):
    assert layers.imports_not_downward(core, table) == []


def test_no_import_cycle(core):
    assert layers.import_cycles(core) == []


def test_no_import_hides_in_a_function(core):
    assert layers.late_imports(core, layers.MAY_IMPORT_LATE) == []


def test_every_listed_late_import_exists(core):
    """The list of exceptions holds nothing that is no exception any more."""
    late = layers.late_imports(core, frozenset())
    stale = [
        (module, function)
        for module, function in sorted(layers.MAY_IMPORT_LATE)
        if not any(line.startswith(f"{module}:") and f"inside {function}()" in line for line in late)
    ]
    assert stale == []


def test_nobody_imports_the_executors(core):
    assert layers.imports_of_executors(core) == []


def test_nobody_reads_byte_code_but_the_interpreter(core):
    assert layers.readers_of_byte_code(core, layers.MAY_READ_AHEAD) == []
    assert len(layers.readers_of_byte_code(core, frozenset())) == len(layers.MAY_READ_AHEAD)


def test_the_interpreter_imports_no_library(core):
    assert layers.other_libraries(core, "interpreter") == []


def test_core_asks_for_every_library_that_it_imports(core):
    project = ROOT / "packages" / "thunder-core" / "pyproject.toml"
    assert layers.undeclared_dependencies(core, project) == []


def test_the_interpreter_runs_without_torch(core):
    """Imports the interpreter in a process in which an import of torch fails."""
    names = [name for name in core if name.startswith("thunder.interpreter")]
    assert names, "the interpreter is missing"
    program = f"""
        import importlib, sys, types

        class NoTorch:
            def find_spec(self, name, path=None, target=None):
                if name.split(".")[0] == "torch":
                    raise ImportError("the interpreter must not import torch")

        sys.meta_path.insert(0, NoTorch())
        # The package around the interpreter belongs to a higher layer: it is entered without running it.
        sys.modules["thunder"] = package = types.ModuleType("thunder")
        package.__path__ = [{str(CORE)!r} + "/thunder"]
        for name in {names!r}:
            importlib.import_module(name)
        assert "torch" not in sys.modules
        print("imported", len({names!r}))
    """
    run = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (0, f"imported {len(names)}\n"), run.stderr
