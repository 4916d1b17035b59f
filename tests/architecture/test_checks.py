"""Each check fails on a small tree that breaks its rule, and passes on its neighbour that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from architecture import layers, names
from architecture.source import Module, modules

TABLE = layers.Layers(
    (
        ("__init__", 8),
        ("core.__init__", 0),
        ("core.low", 0),
        ("core.interpreter", 1),
        ("core.middle", 1),
        ("executors", 7),
    )
)


def tree(folder: Path, **files: str) -> dict[str, Module]:
    """A package `thunder` with the given files; `__` in a name stands for a directory."""
    for name, text in {"core__init": "", **files}.items():
        parts = name.split("__")
        path = folder.joinpath(
            "thunder", *parts[:-1], "__init__.py" if parts[-1] == "init" else f"{parts[-1]}.py"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return modules(folder)


def test_layers_are_read_from_the_table_and_the_longest_prefix_decides(tmp_path):
    document = tmp_path / "ARCHITECTURE.md"
    document.write_text(
        "| a | b |\n|---|---|\n| 5 | `wrong` |\n\n| layer | modules |\n|---|---|\n"
        "| 0 | `core/errors`, `core/__init__` |\n| 1 | `core/passes/` (text) |\n| 8 | `__init__` |\n"
    )
    table = layers.read_layers(document)
    named = ("thunder.core.errors", "thunder.core", "thunder.core.passes.dce", "thunder")
    assert [table.of(name) for name in named] == [0, 0, 1, 8]
    unnamed = ("thunder.core.errorsx", "thunder.wrong", "thunder.core.other")
    assert [table.of(name) for name in unnamed] == [None, None, None]


def test_a_document_without_a_table_is_an_error(tmp_path):
    document = tmp_path / "ARCHITECTURE.md"
    document.write_text("no table")
    with pytest.raises(ValueError, match="has no table"):
        layers.read_layers(document)


def test_a_module_outside_the_table_is_found(tmp_path):
    assert layers.modules_without_layer(tree(tmp_path, core__low="", core__new=""), TABLE) == [
        "thunder.core.new"
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "import thunder.core.middle",
        "from thunder.core import middle",
        "from thunder.core.middle import f",
        "from . import middle",
        "from .middle import f",
        "from ..core.middle import f",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from thunder.core.middle import T",
        "try:\n    import thunder.core.middle\nexcept ImportError:\n    raise",
        "class A:\n    from thunder.core.middle import f",
        "import thunder",
    ],
)
def test_an_upward_import_is_found(tmp_path, statement):
    known = tree(tmp_path, core__low=statement, core__middle="")
    assert len(layers.upward_imports(known, TABLE)) == 1


def test_downward_and_level_imports_pass(tmp_path):
    known = tree(
        tmp_path,
        core__low="import os",
        core__middle="from thunder.core.low import f",
        core__interpreter__init="from thunder.core.middle import f",
    )
    assert layers.upward_imports(known, TABLE) == []


def test_a_cycle_is_found_and_one_for_types_alone_is_none(tmp_path):
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from thunder.core import b"
    cyclic = tree(
        tmp_path / "bad",
        core__a="from thunder.core import c",
        core__b="import thunder.core.a",
        core__c="from .b import f",
    )
    assert layers.import_cycles(cyclic) == ["thunder.core.a ↔ thunder.core.b ↔ thunder.core.c"]
    assert layers.import_cycles(tree(tmp_path / "good", core__a=lazy, core__b="import thunder.core.a")) == []


@pytest.mark.parametrize(
    "body",
    [
        "import os",
        "from os import path",
        "__import__('os')",
        "import importlib\n    importlib.import_module('os')",
    ],
)
def test_an_import_inside_a_function_is_found(tmp_path, body):
    known = tree(tmp_path, core__low=f"def late():\n    {body}\n")
    assert layers.late_imports(known, {}) != []
    assert layers.late_imports(known, {("thunder.core.low", "late")}) == []


def test_an_import_of_an_executor_is_found(tmp_path):
    known = tree(
        tmp_path,
        core__low="import thunder.executors.torchex",
        executors__torchex="",
        executors__pythonex="from thunder.executors.torchex import x",
    )
    assert layers.imports_of_executors(known) == ["thunder.core.low:1 imports thunder.executors.torchex"]


def test_an_interpreter_that_knows_more_than_layer_zero_is_found(tmp_path):
    text = "import dis\nimport torch\nfrom thunder.core import low, middle\nfrom .policy import x"
    known = tree(
        tmp_path, core__interpreter__init="", core__interpreter__frame=text, core__low="", core__middle=""
    )
    found = layers.imports_between(known, "thunder.core.interpreter", TABLE, highest=0)
    assert [line.split()[-1] for line in found] == ["torch", "thunder.core.middle"]


def test_an_undeclared_library_is_found(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text(
        '[project]\ndependencies = ["torch>=2"]\n[project.optional-dependencies]\ntesting = ["py-test"]'
    )
    known = tree(tmp_path, core__low="import torch, os, numpy\nimport py_test", testing__kit="import py_test")
    found = layers.undeclared_dependencies(known, project)
    assert found == ["thunder.core.low:1 imports numpy", "thunder.core.low:2 imports py_test"]


def test_missing_docstrings_are_found(tmp_path):
    text = 'def f(): ...\ndef _g(): ...\nclass A:\n    """Doc."""\nclass B: ...\n'
    known = tree(tmp_path, core__low=text, core___private="def f(): ...", core__middle='"""Doc."""')
    assert names.undocumented(known) == ["thunder.core.low", "thunder.core.low.f:1", "thunder.core.low.B:5"]


def test_opcodes_need_no_docstring(tmp_path):
    text = '"""Doc."""\ndef CALL(): ...\ndef call(): ...\n'
    known = tree(tmp_path, core__interpreter__handlers__calls=text, core__low=text)
    assert names.undocumented(known) == [
        "thunder.core.interpreter.handlers.calls.call:3",
        "thunder.core.low.CALL:2",
        "thunder.core.low.call:3",
    ]


def test_long_files_and_functions_are_found(tmp_path):
    text = "def f():\n    x = 1\n    return x\n\ndef g(): ...\n"
    known = tree(tmp_path, core__low=text, core__middle="x = 1\n" * 6)
    assert names.oversized(known, lines_of_file=5, lines_of_function=2) == [
        "thunder.core.middle",
        "thunder.core.low.f",
    ]


def test_names_errors_and_asserts_are_found(tmp_path):
    text = (
        "assert True\nassert True, 'said'\n"
        "try:\n    f()\nexcept Exception:\n    pass\n"
        "try:\n    f()\nexcept KeyError:\n    pass\n"
        "for x in y:\n    try:\n        f()\n    except:\n        continue\n"
    )
    known = tree(tmp_path, core__low=text, core__helpers="", core__utils="")
    assert names.empty_module_names(known) == ["thunder.core.helpers"]
    assert names.swallowed_errors(known) == ["thunder.core.low:5", "thunder.core.low:14"]
    assert names.silent_asserts(known) == ["thunder.core.low:1"]


@pytest.mark.parametrize(
    "line", ["# as nvFuser does", "x = 'thunder-triton'", "import thunder_te", "bitsandbytes = 1"]
)
def test_a_plugin_named_in_core_is_found(tmp_path, line):
    known = tree(
        tmp_path, core__low=f"y = 'thunder-core'\nz = 'interpreter'\n{line}\n", plugins__not_installed=line
    )
    assert names.plugin_names(known) == [f"thunder.core.low:3: {line}"]


@pytest.mark.parametrize(
    "text", ["see /home/someone/x", "cd /Users/me/main", "x = 1  # TODO later", "`/root/.cache`"]
)
def test_foreign_text_is_found(tmp_path, text):
    assert len(names.foreign_text({tmp_path / "a.md": f"fine: a/home/x, ~/work, todo\n{text}\n"})) == 1


def test_a_document_that_is_not_there_is_found(tmp_path):
    files = {tmp_path / "README.md": "see ARCHITECTURE.md\nand NOWHERE.md", tmp_path / "ARCHITECTURE.md": ""}
    assert names.absent_documents(files) == [f"{tmp_path / 'README.md'}:2: NOWHERE.md"]


def test_texts_follow_git_where_there_is_one_and_leave_hidden_files_out_where_not(tmp_path):
    (tmp_path / "a.md").write_text("seen")
    (tmp_path / "a.bin").write_bytes(b"\xff")
    assert [path.name for path in names.texts(tmp_path)] == ["a.md"]
