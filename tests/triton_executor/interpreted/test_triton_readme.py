"""The README of thunder-triton, and the page on Triton, show what happens."""

from __future__ import annotations

import pytest

import thunder_triton
from documents.blocks import comparable, run
from documents.test_documents import ROOT
from thunder.plugins import get_manager


@pytest.mark.parametrize("page", ["packages/thunder-triton/README.md", "docs/triton.md"])
def test_the_examples_print_what_the_page_shows(page: str):
    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        for example, printed in run(ROOT / page):
            if example.output is not None:
                assert comparable(printed) == comparable(example.output)
