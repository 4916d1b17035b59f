"""The README of thunder-autotune shows what happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from documents.blocks import comparable, run
from documents.test_documents import ROOT


def test_the_examples_print_what_the_readme_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for example, printed in run(ROOT / "packages/thunder-autotune/README.md"):
        if example.output is not None:
            assert comparable(printed) == comparable(example.output)
    assert (tmp_path / "thunder.lock.toml").read_text(encoding="utf-8").startswith("# Placement")
