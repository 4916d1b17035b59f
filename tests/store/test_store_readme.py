"""The README of thunder-store shows what happens."""

from __future__ import annotations

from documents.blocks import comparable, run
from documents.test_documents import ROOT


def test_the_examples_print_what_the_page_shows() -> None:
    for example, printed in run(ROOT / "packages/thunder-store/README.md"):
        if example.output is not None:
            assert comparable(printed) == comparable(example.output)
