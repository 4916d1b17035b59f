"""Every row of `docs/differences.md` names a test that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADER = "| eager | thunder | why | test |"


def rows(text: str) -> list[list[str]]:
    """The rows of the page's tables, as their cells; headers and rules are left out."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    return [row for row in cells if row != ["eager", "thunder", "why", "test"] and set("".join(row)) != {"-"}]


def complaint(row: list[str], root: Path = ROOT) -> str | None:
    """What is wrong with a row: its number of cells, an empty cell, or a test that does not exist."""
    if len(row) != 4 or not all(row):
        return f"{row}: four filled cells are needed"
    named = re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", row[3])
    if named is None:
        return f"{row[3]}: write `tests/folder/file.py::test_name`"
    file, name = named.groups()
    if not (root / file).is_file():
        return f"{file} does not exist"
    tree = ast.parse((root / file).read_text(encoding="utf-8"))
    if name not in {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}:
        return f"{file} has no {name}"
    return None


def test_each_difference_names_a_test_that_exists() -> None:
    found = rows((ROOT / "docs" / "differences.md").read_text(encoding="utf-8"))
    assert [complaint(row) for row in found if complaint(row)] == []


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (["a", "b", "c"], "four filled cells"),
        (["a", "b", "", "`tests/x.py::test_y`"], "four filled cells"),
        (["a", "b", "c", "somewhere"], "write `tests"),
        (["a", "b", "c", "`tests/absent.py::test_y`"], "does not exist"),
        (["a", "b", "c", "`tests/documents/test_differences.py::test_absent`"], "has no test_absent"),
    ],
)
def test_a_row_without_its_test_is_found(row: list[str], said: str) -> None:
    text = "\n".join([HEADER, "|---|---|---|---|", "| " + " | ".join(row) + " |"])
    assert said in str(complaint(rows(text)[0]))
