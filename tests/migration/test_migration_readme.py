"""The README of thunder-migration runs, and prints what it shows."""

from __future__ import annotations

from documents.blocks import comparable, run
from documents.test_documents import ROOT


def test_the_examples_print_what_the_readme_shows():
    for example, printed in run(ROOT / "packages" / "thunder-migration" / "README.md"):
        assert comparable(printed) == comparable(example.output)
