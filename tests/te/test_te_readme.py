"""The README of thunder-te shows what happens."""

from __future__ import annotations

import thunder_te
from documents.blocks import comparable, run
from documents.test_documents import ROOT


def test_the_examples_print_what_the_readme_shows():
    for example, printed in run(ROOT / "packages" / "thunder-te" / "README.md"):
        if example.output is not None:
            assert comparable(printed) == comparable(example.output)


def test_the_readme_and_the_doctor_name_the_same_versions_that_were_tried():
    text = (ROOT / "packages" / "thunder-te" / "README.md").read_text(encoding="utf-8")
    for spec in thunder_te.thunder_executors():
        assert spec.tried
        assert spec.tried in " ".join(text.split())
