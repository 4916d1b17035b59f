"""The summary beside each recorded file is what its data give."""

from __future__ import annotations

from pathlib import Path

import pytest

import summaries


@pytest.mark.parametrize("data", summaries.SUMMARIES, ids=lambda path: path.stem)
def test_the_summary_is_that_of_the_data(data: Path) -> None:
    written = data.with_suffix(".md").read_text(encoding="utf-8")
    assert written == summaries.summary_of(data), "run: python tests/summaries.py"


def test_an_operator_that_is_refused_once_more_changes_the_summary() -> None:
    def record(verdict: str) -> dict[str, object]:
        forward = {"float32": verdict}
        return {"forward": forward, "gradient": "none", "second_order": "none", "means": "row"}

    complete = summaries.operators({"add": record("complete"), "sub": record("complete")})
    partial = summaries.operators({"add": record("complete"), "sub": record("partial")})
    assert "| float32 | 2 | 0 | 0 | 0 | 0 |" in complete
    assert "| float32 | 1 | 1 | 0 | 0 | 0 |" in partial
