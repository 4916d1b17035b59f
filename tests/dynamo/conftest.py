"""What the tests of `thunder.dynamo` have in common."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from thunder_inductor.dynamo import inductor_part


@pytest.fixture(autouse=True)
def _no_compiled_frames() -> Iterator[None]:
    """Forget what TorchDynamo compiled, and let it put calls whose shape depends on data into graphs."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        yield
    torch._dynamo.reset()


@pytest.fixture
def _quick_inductor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the graphs of AOTAutograd as they are, where TorchInductor would compile them."""
    monkeypatch.setattr(inductor_part, "COMPILE_SETTINGS", {"backend": "aot_eager", "fullgraph": True})
