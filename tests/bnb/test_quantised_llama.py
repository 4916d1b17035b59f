"""The example compares storages of a trained Llama, fine-tunes one of them, and draws."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

TINY = ["--layers", "1", "--batch", "2", "--accumulate", "1", "--length", "32", "--repeats", "2"]


def test_the_example_compares_fine_tunes_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    example = importlib.import_module("quantised_llama")
    picture = tmp_path / "picture.png"
    rows, losses = example.main([*TINY, "--steps", "20", "--adapt", "10", "--out", str(picture)])
    assert [row.name for row in rows] == list(example.STORAGES)
    sizes = {row.name: row.weight_bytes / rows[0].weight_bytes for row in rows}
    assert sizes["nf4"] == sizes["fp4"] < 0.16
    assert sizes["int8"] < 0.27
    assert all(abs(row.perplexity / rows[0].perplexity - 1) < 0.1 for row in rows)
    assert rows[0].agreement == 1
    assert all(row.agreement > 0.9 for row in rows)
    assert losses[-1] < losses[0]
    assert picture.read_bytes().startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "as it is: head.weight: the weight is also embedding.weight" in printed
