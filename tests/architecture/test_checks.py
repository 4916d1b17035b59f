"""Each check fails on a small tree that breaks its rule, and passes on its neighbour that does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from architecture import layers, names
from architecture.source import Module, modules

TABLE = layers.Layers({"base": 0, "interpreter": 1, "ir": 1, "executors": 7, "__init__": 8})


def tree(folder: Path, **files: str) -> dict[str, Module]:
    """A package `thunder` with the given files; `__` in a name stands for a directory."""
    for name, text in {"base__init": "", **files}.items():
        parts = name.split("__")
        path = folder.joinpath(
            "thunder", *parts[:-1], "__init__.py" if parts[-1] == "init" else f"{parts[-1]}.py"
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return modules(folder)


def test_layers_are_read_from_the_table(tmp_path):
    document = tmp_path / "ARCHITECTURE.md"
    document.write_text(
        "| a | b |\n|---|---|\n| 5 | `wrong` |\n\n| layer | folders |\n|---|---|\n"
        "| 0 | `base/`, `__about__` |\n| 1 | `passes/` (text) |\n| 8 | `__init__` |\n"
    )
    table = layers.read_layers(document)
    named = ("thunder.base.errors", "thunder.base", "thunder.__about__", "thunder.passes.dce", "thunder")
    assert [table.of(name) for name in named] == [0, 0, 0, 1, 8]
    assert table.of("thunder.wrong") is None


@pytest.mark.parametrize("rows", ["| 0 | `base/errors` |", "| 0 | `base/` |\n| 1 | `base/` |"])
def test_a_table_that_does_not_give_each_folder_one_layer_is_an_error(tmp_path, rows):
    document = tmp_path / "ARCHITECTURE.md"
    document.write_text(f"| layer | folders |\n|---|---|\n{rows}\n")
    with pytest.raises(ValueError, match="is not a folder, or has two layers"):
        layers.read_layers(document)


def test_a_document_without_a_table_is_an_error(tmp_path):
    document = tmp_path / "ARCHITECTURE.md"
    document.write_text("no table")
    with pytest.raises(ValueError, match="has no table"):
        layers.read_layers(document)


def test_a_folder_outside_the_table_is_found(tmp_path):
    known = tree(tmp_path, base__low="", new__low="")
    assert layers.modules_without_layer(known, TABLE) == ["thunder.new.low"]


def test_a_folder_that_only_the_table_has_is_found(tmp_path):
    known = tree(tmp_path, init="", ir__a="", interpreter__a="")
    assert layers.folders_without_modules(known, TABLE) == ["executors"]


@pytest.mark.parametrize(
    "statement",
    [
        "import thunder.ir.middle",
        "from thunder.ir import middle",
        "from thunder.ir.middle import f",
        "from ..ir.middle import f",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from thunder.ir.middle import T",
        "try:\n    import thunder.ir.middle\nexcept ImportError:\n    raise",
        "class A:\n    from thunder.ir.middle import f",
        "import thunder",
    ],
)
@pytest.mark.parametrize("importer", ["base__low", "interpreter__low"])
def test_an_import_upwards_or_within_the_layer_is_found(tmp_path, importer, statement):
    known = tree(tmp_path, **{importer: statement}, ir__middle="")
    assert len(layers.imports_not_downward(known, TABLE)) == 1


def test_imports_downwards_and_within_a_folder_pass(tmp_path):
    known = tree(
        tmp_path,
        base__low="import os",
        ir__middle="from thunder.base.low import f\nfrom . import other",
        ir__other="from .middle import f",
    )
    assert layers.imports_not_downward(known, TABLE) == []


def test_a_cycle_is_found_and_one_for_types_alone_is_none(tmp_path):
    lazy = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from thunder.base import b"
    cyclic = tree(
        tmp_path / "bad",
        base__a="from thunder.base import c",
        base__b="import thunder.base.a",
        base__c="from .b import f",
    )
    assert layers.import_cycles(cyclic) == ["thunder.base.a ↔ thunder.base.b ↔ thunder.base.c"]
    assert layers.import_cycles(tree(tmp_path / "good", base__a=lazy, base__b="import thunder.base.a")) == []


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
    known = tree(tmp_path, base__low=f"def late():\n    {body}\n")
    assert layers.late_imports(known, {}) != []
    assert layers.late_imports(known, {("thunder.base.low", "late")}) == []


def test_an_import_of_an_executor_is_found(tmp_path):
    known = tree(
        tmp_path,
        base__low="import thunder.executors.torchex",
        executors__torchex="",
        executors__pythonex="from thunder.executors.torchex import x",
    )
    assert layers.imports_of_executors(known) == ["thunder.base.low:1 imports thunder.executors.torchex"]


def test_a_reader_of_byte_code_is_found(tmp_path):
    known = tree(
        tmp_path,
        frontend__calls="from thunder.interpreter.handlers.calling import CALL\nimport thunder.base.low",
        base__low="",
        frontend__ranges="from thunder.interpreter.coming_uses import is_iterated",
        interpreter__coming_uses="from thunder.interpreter.handlers.calling import CALL",
        interpreter__handlers__calling="CALL = 1",
    )
    allowed = {("thunder.frontend.ranges", "thunder.interpreter.coming_uses")}
    assert layers.readers_of_byte_code(known, allowed) == [
        "thunder.frontend.calls:1 imports thunder.interpreter.handlers.calling"
    ]


def test_a_library_that_the_interpreter_imports_is_found(tmp_path):
    text = "import dis\nimport torch\nfrom thunder.base import low\nfrom .policy import x"
    known = tree(tmp_path, interpreter__frame=text, base__low="import torch")
    assert layers.other_libraries(known, "interpreter") == ["thunder.interpreter.frame:2 imports torch"]


def test_modules_of_one_name_are_found_unless_they_share_a_subject():
    shared = [
        "thunder.ops.prims.random",
        "thunder.torch.rows.random",
        "thunder.core.trace",
        "thunder.ir.trace",
    ]
    assert names.ambiguous_module_names(shared) == []
    assert names.ambiguous_module_names(["thunder.frontend.random", *shared]) == [
        "thunder.frontend.random and thunder.ops.prims.random and thunder.torch.rows.random"
    ]
    assert names.ambiguous_module_names(["thunder.a.state", "thunder.b.state"]) == [
        "thunder.a.state and thunder.b.state"
    ]


def test_an_undeclared_library_is_found(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text(
        '[project]\ndependencies = ["torch>=2"]\n[project.optional-dependencies]\ngraph = ["graphs"]'
    )
    late = "def _digraph():\n    import graphs\n"
    known = tree(
        tmp_path,
        base__low="import torch, os, numpy\nimport graphs",
        examine__graph=f"if TYPE_CHECKING:\n    import graphs\n{late}",
        examine__other=late,
    )
    found = layers.undeclared_dependencies(known, project)
    assert found == [
        "thunder.base.low:1 imports numpy",
        "thunder.base.low:2 imports graphs",
        "thunder.examine.other:2 imports graphs",
    ]


def test_missing_docstrings_are_found(tmp_path):
    text = 'def f(): ...\ndef _g(): ...\nclass A:\n    """Doc."""\nclass B: ...\n'
    known = tree(tmp_path, base__low=text, base___private="def f(): ...", base__middle='"""Doc."""')
    assert names.undocumented(known) == ["thunder.base.low", "thunder.base.low.f:1", "thunder.base.low.B:5"]


def test_opcodes_need_no_docstring(tmp_path):
    text = '"""Doc."""\ndef CALL(): ...\ndef call(): ...\n'
    known = tree(tmp_path, base__low=text, interpreter__handlers__calls=text)
    assert names.undocumented(known) == [
        "thunder.base.low.CALL:2",
        "thunder.base.low.call:3",
        "thunder.interpreter.handlers.calls.call:3",
    ]


def test_long_files_and_functions_are_found(tmp_path):
    text = "def f():\n    x = 1\n    return x\n\ndef g(): ...\n"
    known = tree(tmp_path, base__low=text, base__middle="x = 1\n" * 6)
    assert names.oversized(known, lines_of_file=5, lines_of_function=2) == [
        "thunder.base.middle",
        "thunder.base.low.f",
    ]


def test_names_errors_and_asserts_are_found(tmp_path):
    text = (
        "assert True\nassert True, 'said'\n"
        "try:\n    f()\nexcept Exception:\n    pass\n"
        "try:\n    f()\nexcept KeyError:\n    pass\n"
        "for x in y:\n    try:\n        f()\n    except:\n        continue\n"
    )
    known = tree(tmp_path, base__low=text, base__helpers="", core__utils="")
    assert names.empty_module_names(known) == ["thunder.base.helpers"]
    assert names.swallowed_errors(known) == ["thunder.base.low:5", "thunder.base.low:14"]
    assert names.silent_asserts(known) == ["thunder.base.low:1"]


@pytest.mark.parametrize(
    "line", ["p.__dict__['a'] = 1", "del p.__dict__['a']", "p.__dict__.update(a=1)", "vars(p)['a'] = 1"]
)
def test_an_undeclared_attribute_is_found(tmp_path, line):
    known = tree(tmp_path, base__low=f"x = p.__dict__['a'], vars(p).get('b')\n{line}\n")
    assert names.undeclared_attributes(known) == ["thunder.base.low:2 writes to the __dict__ of p"]


@pytest.mark.parametrize(
    "line", ["# as nvFuser does", "x = 'thunder-triton'", "import thunder_te", "bitsandbytes = 1"]
)
def test_a_plugin_named_in_core_is_found(tmp_path, line):
    known = tree(
        tmp_path, base__low=f"y = 'thunder-core'\nz = 'interpreter'\n{line}\n", plugins__not_installed=line
    )
    assert names.plugin_names(known) == [f"thunder.base.low:3: {line}"]


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
