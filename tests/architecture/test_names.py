"""Names, docstrings and words: what a reader of the tree may rely on."""

from __future__ import annotations

from pathlib import Path

import pytest

from architecture import names
from architecture.source import ROOT, Module, modules_of_core

# Files that hold the patterns which they look for, and examples of what the patterns find.
CHECKERS = {
    ROOT / "tests" / "architecture" / name for name in ("names.py", "test_names.py", "test_checks.py")
}


@pytest.fixture(scope="module")
def core() -> dict[str, Module]:
    return modules_of_core()


@pytest.fixture(scope="module")
def files() -> dict[Path, str]:
    return {path: text for path, text in names.texts(ROOT).items() if path not in CHECKERS}


def test_every_public_name_has_a_docstring(core):
    assert names.undocumented(core) == []


def test_files_and_functions_have_one_subject(core):
    """The aim is about 400 lines a file and 40 a function; half as much again is certainly too long."""
    assert names.oversized(core, lines_of_file=600, lines_of_function=60) == []


def test_no_module_has_an_empty_name(core):
    assert names.empty_module_names(core) == []


def test_no_two_modules_of_different_subjects_share_a_name(core):
    assert names.ambiguous_module_names(core) == []


def test_no_handler_swallows_every_error(core):
    assert names.swallowed_errors(core) == []


def test_every_assert_has_a_message(core):
    assert names.silent_asserts(core) == []


def test_no_undeclared_attribute_is_written(core):
    assert names.undeclared_attributes(core) == []


def test_core_names_no_plugin(core):
    assert names.plugin_names(core) == []


def test_no_text_depends_on_one_machine(files):
    assert names.foreign_text(files) == []


def test_every_document_that_is_mentioned_exists(files):
    assert names.absent_documents(files) == []
