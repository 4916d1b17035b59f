"""The README of thunder-triton shows what happens."""

from __future__ import annotations

import thunder_triton
from documents.blocks import comparable, run
from documents.test_documents import ROOT
from thunder.plugins import get_manager


def test_the_examples_print_what_the_readme_shows():
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        for example, printed in run(ROOT / "packages" / "thunder-triton" / "README.md"):
            if example.output is not None:
                assert comparable(printed) == comparable(example.output)
