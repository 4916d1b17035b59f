"""The README of thunder-onednn, and the page about inference, show what happens."""

from __future__ import annotations

import pytest
import torch

from documents.blocks import comparable, run
from documents.test_documents import ROOT
from onednn.quantised.reference import needs_vnni


@pytest.mark.parametrize(
    "page", ["packages/thunder-onednn/README.md", pytest.param("docs/inference.md", marks=needs_vnni)]
)
def test_the_examples_print_what_the_page_shows(page):
    with torch.enable_grad():
        for example, printed in run(ROOT / page):
            if example.output is not None:
                assert comparable(printed) == comparable(example.output)
