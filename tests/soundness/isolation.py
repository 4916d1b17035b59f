"""Fixtures for test folders: torch's global state is put back, every trace is verified."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from thunder.compiler.pipeline import Pipeline


@pytest.fixture(autouse=True)
def torch_state_is_restored() -> Iterator[None]:
    """One thread, and torch's global state put back, so that one failing test does not fail the next."""
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_default_dtype(dtype)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("highest")


@pytest.fixture(autouse=True)
def every_trace_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stage's trace is verified, and each tensor compared with its proxy when it is computed."""
    run = Pipeline.run

    def checked(self: Pipeline, *args: Any, **options: Any) -> Any:
        return run(self, *args, **{**options, "check": True})

    monkeypatch.setattr(Pipeline, "run", checked)
