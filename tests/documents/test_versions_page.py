"""The tables of docs/versions.md are those of the recorded runs, and a run is counted right."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tools.versions import page, runs
from tools.versions.page import Reason
from tools.versions.runs import FAMILIES, Installed, Run

TESTS = """
import pytest

def test_right():
    pass

@pytest.mark.parametrize("number", [1, 2])
def test_wrong(number):
    assert number == 3, "a number\\nand more"

@pytest.mark.skip(reason="not here")
def test_skipped():
    pass
"""
ON = Installed(torch="2.9.1", transformers="5.0.0", python="3.11.7")
RUN = Run(suite="tests/some", on=ON, date="2026-01-02", commit="abc", seconds=3, passed=5, skipped=1)


def test_the_tables_are_up_to_date() -> None:
    text = page.PAGE.read_text(encoding="utf-8")
    assert page.written(text) == text, "run: python -m tools.versions page"


def test_a_run_is_counted(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS, encoding="utf-8")
    report = tmp_path / "report.xml"
    arguments = [str(tmp_path), f"--junitxml={report}", "-p", "no:xdist", "-c", "/dev/null"]
    assert runs._pytest([*arguments, f"--rootdir={tmp_path}"], 60) is None
    passed, skipped, failures = runs.counted(report)
    assert (passed, skipped) == (1, 1)
    assert failures == {f"test_some::test_wrong[{n}]": "AssertionError: a number" for n in (1, 2)}


def test_a_run_that_takes_too_long_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "test_long.py").write_text("import time\ndef test_it(): time.sleep(60)", encoding="utf-8")
    said = runs._pytest([str(tmp_path), "-p", "no:xdist", "-c", "/dev/null", f"--rootdir={tmp_path}"], 2)
    assert said == "the run was ended after 2 s"


def test_a_run_replaces_the_one_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "RECORDED", tmp_path / "runs.json")
    for run in (RUN, replace(RUN, suite="tests/other"), replace(RUN, passed=6)):
        runs.keep(run)
    assert [(run.suite, run.passed) for run in runs.recorded()] == [("tests/other", 5), ("tests/some", 6)]


def test_failures_have_reasons_and_columns_versions() -> None:
    newer = replace(ON, torch="2.10.0")
    failed = replace(
        RUN, on=newer, failures={"tests/documents/test_paths.py::test_b[1]": "no such name", "c d": "?"}
    )
    families = replace(
        RUN, suite=FAMILIES, on=replace(ON, transformers="4.9.0"), failures={"llama x": "wrong"}
    )
    known = [Reason(text="a name is gone", tests="test_b", says="no such", torch="2.10")]
    text = page.tables([RUN, failed, families], known)
    assert "| tests | torch 2.9.1 | torch 2.10.0 |" in text
    assert "| `tests/some` | 5 / 1 / 0 | 5 / 1 / 2 |" in text
    assert "| a name is gone | `tests/documents/test_paths.py`: `test_b` | torch 2.10.0 |" in text
    assert "| not explained | c d; llama x | torch 2.10.0, transformers 4.9.0 |" in text
    assert "| 4.9.0 | thunder-inductor | 5 of 6 |" in text
