"""The README of thunder-nvfuser shows what happens."""

from __future__ import annotations

from documents.blocks import comparable, run
from documents.test_documents import ROOT


def test_the_examples_print_what_the_readme_shows():
    for example, printed in run(ROOT / "packages" / "thunder-nvfuser" / "README.md"):
        if example.output is not None:
            assert comparable(printed) == comparable(example.output)
