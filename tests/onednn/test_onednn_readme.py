"""The README of thunder-onednn shows what happens."""

from __future__ import annotations

import torch

from documents.blocks import comparable, run
from documents.test_documents import ROOT


def test_the_examples_print_what_the_readme_shows():
    with torch.enable_grad():
        for example, printed in run(ROOT / "packages" / "thunder-onednn" / "README.md"):
            if example.output is not None:
                assert comparable(printed) == comparable(example.output)
