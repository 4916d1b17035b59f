"""The names of lightning-thunder: each resolves, or an error says what replaces it."""

from __future__ import annotations

import importlib
import runpy
import sys
from pathlib import Path

import pytest

import thunder
from new_processes import run_python
from thunder.base.public_names import Alias, Replaced
from thunder.plugins.finders import NotFoundFinder
from thunder_migration.names import ABSENT_MODULES, NAMES

ROOT = Path(__file__).resolve().parents[2]
ROWS = [(path, name, row[name]) for path, row in NAMES.items() if ":" not in path for name in row]


def test_names_with_a_meaning_resolve_to_it():
    for path, name, meaning in ROWS:
        if isinstance(meaning, Alias) and meaning.target.startswith("thunder.transforms:"):
            with pytest.raises(AttributeError, match=r"no installed .* provides 'thunder\.transforms"):
                getattr(importlib.import_module(path), name)
        elif isinstance(meaning, Alias):
            assert getattr(importlib.import_module(path), name) is meaning.resolve(), f"{path}.{name}"


def test_names_without_one_say_what_replaces_them():
    for path, name, meaning in ROWS:
        if isinstance(meaning, Replaced):
            module = importlib.import_module(path)
            with pytest.raises(AttributeError) as caught:
                getattr(module, name)
            assert meaning.advice in str(caught.value)
            assert not hasattr(module, name)


def test_modules_without_a_counterpart_say_what_replaces_them():
    for path, meaning in ABSENT_MODULES.items():
        with pytest.raises(ModuleNotFoundError) as caught:
            NotFoundFinder.find_spec(path)  # the last finder, without an import of the package above
        assert meaning.advice in str(caught.value)
    with pytest.raises(ModuleNotFoundError, match="there is no core language"):
        importlib.import_module("thunder.clang")


def test_no_name_of_the_table_hides_one_that_a_module_has():
    for path, name, _ in ROWS:
        assert name not in vars(importlib.import_module(path)), f"{path}.{name}"


MESSAGES = {
    "thunder.register_executor": "There is thunder.extend.register_executor.",
    "thunder.OperatorExecutor": "There is thunder.extend.OperatorExecutor.",
    "thunder.extend.get_grad": "There is thunder.core.transforms.get_grad",
    "thunder.core.trace.dce": "There is thunder.core.transform_common.dce.",
    "thunder.core.utils.prducers": "Did you mean 'producers'?",
    "thunder.torch.sofmax": "Did you mean 'softmax'?",
    "thunder.core.prims.matmull": "Did you mean 'matmul'?",
    "thunder.clang": "write torch, thunder.torch",
    "thunder.core.symbol.default_python_printer": "leave python_printer= out",
}


@pytest.mark.parametrize("path", MESSAGES)
def test_an_attribute_error_says_where_the_name_is(path):
    module, _, name = path.rpartition(".")
    with pytest.raises(AttributeError) as caught:
        getattr(importlib.import_module(module), name)
    assert MESSAGES[path] in str(caught.value)


@pytest.mark.parametrize("path", MESSAGES)
def test_a_from_import_says_it_too(path):
    module, _, name = path.rpartition(".")
    with pytest.raises(ImportError) as caught:
        exec(f"from {module} import {name}")
    assert MESSAGES[path] in str(caught.value)


PROGRAM = """
import thunder
import thunder_migration
thunder.plugins.get_manager().register(thunder_migration, name="migration-here")
assert thunder.functional.jit is thunder.jit
assert thunder.dev_utils.check_trace.check_trace is thunder.core.verify.check_trace
assert thunder.devices.cpu is thunder.devices.Device("cpu")
from thunder.core.langctxs import langctx, LanguageContext
import thunder.core.compile_data, thunder.core.baseutils, thunder.executors.utils
from thunder.functional import *
assert jit is thunder.jit
"""


def test_modules_of_the_table_are_imported_in_every_form():
    """In a process of its own, where nothing has been imported yet."""
    run = run_python("-c", PROGRAM)
    assert run.stderr == ""


def test_a_library_that_a_module_lacks_is_reported_as_it_is(monkeypatch):
    monkeypatch.delitem(sys.modules, "thunder.examine", raising=False)
    monkeypatch.delattr(thunder, "examine", raising=False)
    monkeypatch.setitem(sys.modules, "thunder.examine.memory_calculation", None)
    with pytest.raises(ImportError, match="memory_calculation"):
        getattr(thunder, "examine")  # noqa: B009


def test_the_page_has_the_table_of_names():
    """`python tools/migration_table.py` writes it."""
    table = runpy.run_path(str(ROOT / "tools" / "migration_table.py"))
    assert table["page"]() == table["PAGE"].read_text(encoding="utf-8")
