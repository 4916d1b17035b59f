"""Edited programs whose calls are fused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
import thunder_store
from thunder.plugins import get_manager
from thunder_store import EditedProgramError


@pytest.fixture(autouse=True)
def _store() -> Iterator[None]:
    with get_manager().temporary(thunder_store, name="store-under-test"):
        yield


def program(x: Any, w: Any) -> Any:
    return torch.sin(x * w) * 2


def test_the_lines_of_a_region_cannot_be_changed(tmp_path: Path) -> None:
    x, w = torch.ones(2, 3, requires_grad=True), torch.ones(3, requires_grad=True)
    compiled = thunder.jit(program, executors=["inductor", "torch"])
    compiled(x, w)
    first, last = (str(thunder.last_traces(compiled)[i]) for i in (0, -1))
    path = tmp_path / "edited.py"
    path.write_text(last)
    thunder.use(compiled, path)
    torch.testing.assert_close(compiled(x, w), program(x, w))
    path.write_text(last.replace(", 2)", ", 3)"))
    with pytest.raises(EditedProgramError, match="the region InductorFusion0 is compiled"):
        thunder.use(compiled, path)
    path.write_text(first.replace(", 2)", ", 3)"))
    thunder.use(compiled, path, check=False)
    assert "InductorFusion0" in str(thunder.last_traces(compiled)[-1])
    torch.testing.assert_close(compiled(x, w), torch.sin(x * w) * 3)
