"""Compiled modules and functions in programs of torch.compile and torch.export."""

from __future__ import annotations

import pytest
import torch

import thunder


class Model(torch.nn.Module):
    """A module with a parameter and a size."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return relu(W x + b) by rows."""
        return self.linear(x).relu().view(x.shape[0], 2, 2)


@pytest.mark.parametrize("part", ["module", "forward", "function"])
def test_a_compiled_object_runs_as_it_is_in_a_program_of_torch_compile(part: str) -> None:
    model, x = Model(), torch.randn(3, 4)
    compiled = thunder.jit(model)
    called = {"module": compiled, "forward": compiled.forward, "function": lambda x: compiled(x) + 1}[part]
    program = torch.compile(called, backend="eager")
    for _ in range(2):
        assert torch.equal(program(x), model(x) + (part == "function"))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)


def test_torch_export_exports_the_program_as_it_was_written() -> None:
    model, x = Model(), torch.randn(3, 4)
    compiled = thunder.jit(model)
    compiled(x)
    rows = torch.export.Dim("rows")
    exported = torch.export.export(compiled, (x,), dynamic_shapes=({0: rows},))
    assert torch.equal(exported.module()(torch.ones(5, 4)), model(torch.ones(5, 4)))
    assert "linear.weight" in exported.state_dict
