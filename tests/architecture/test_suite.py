"""The rules that the tests follow, and that each check of them finds what breaks its rule."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from architecture import suite
from architecture.source import CORE, ROOT


@pytest.fixture(scope="module")
def files() -> dict[Path, ast.Module]:
    return suite.trees(ROOT / "tests")


def parsed(text: str) -> dict[Path, ast.Module]:
    """Return the tree of one test file."""
    return {Path("test_it.py"): ast.parse(text)}


def folders_in(path: Path) -> set[str]:
    return {folder.name for folder in path.iterdir() if any(folder.glob("*.py"))}


def test_folders_of_tests_mirror_folders_of_the_source():
    """What a folder does is tested in the folder of its name."""
    assert suite.without_source(ROOT / "tests", ROOT / "packages") == []


def test_tables_of_folders_name_folders_with_tests():
    with_tests = {
        path.parent.relative_to(ROOT / "tests").as_posix() for path in (ROOT / "tests").rglob("test_*.py")
    }
    assert suite.MIRRORED.keys() | suite.ACROSS <= with_tests


def test_a_folder_of_tests_without_a_source_is_found(tmp_path):
    core, package = "thunder-core/src/thunder", suite.MIRRORED["testing"]
    for folder in (f"{core}/ir", f"{core}/torch/rows", package):
        (tmp_path / "packages" / folder).mkdir(parents=True)
    mirrored = ("ir", "torch_language", "torch_language/rows", "testing", "models/zoo")
    others = ("ir/rows", "operators", "testing/rows", "torch_language/row")
    for folder in (*mirrored, *others):
        (tmp_path / "tests" / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / folder / "test_it.py").touch()
    assert suite.without_source(tmp_path / "tests", tmp_path / "packages") == list(others)


def test_folders_of_the_frontends_tests_are_its_own():
    """Each of its folders has tests."""
    assert folders_in(ROOT / "tests" / "frontend") == folders_in(CORE / "thunder" / "frontend")


def test_every_expected_error_is_named(files):
    """The class alone is the error of any program that fails, also for another reason."""
    assert suite.unnamed_errors(files) == []


@pytest.mark.parametrize(
    "statement",
    [
        "with pytest.raises(ValueError): f()",
        "with pytest.raises(ValueError) as error: f()",
        "with pytest.warns(W), pytest.raises(ValueError): f()",
        "pytest.raises(ValueError, f)",
    ],
)
def test_an_unnamed_error_is_found(statement):
    assert len(suite.unnamed_errors(parsed(f"def test_f():\n    {statement}\n"))) == 1
    assert len(suite.unnamed_errors(parsed(f"class A:\n  def test_f(self):\n    {statement}\n"))) == 1


@pytest.mark.parametrize(
    "statement",
    [
        "with pytest.raises(ValueError, match='negative'): f()",
        "with pytest.raises(ValueError) as error: f()\n    assert error.value.args == (-1,)",
    ],
)
def test_a_named_error_is_not_found(statement):
    assert suite.unnamed_errors(parsed(f"def test_f():\n    {statement}\n")) == []


def test_tests_are_called_by_their_subject(files):
    assert suite.numbered_names(files) == []


def test_a_name_by_number_is_found():
    text = (
        "def test_m17_raises(): ...\ndef test_S3(): ...\ndef test_float32_is_kept(): ...\ndef test_two(): ..."
    )
    assert [line.split()[-1] for line in suite.numbered_names(parsed(text))] == ["test_m17_raises", "test_S3"]
