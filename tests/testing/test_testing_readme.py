"""The README of thunder-testing runs, and prints what it shows."""

from __future__ import annotations

from documents.blocks import comparable, run
from documents.test_documents import ROOT


def test_the_readme_runs() -> None:
    shown = [
        example for example in run(ROOT / "packages" / "thunder-testing" / "README.md") if example[0].output
    ]
    assert len(shown) == 1
    for example, printed in shown:
        assert comparable(printed) == comparable(example.output)
