"""Whole training steps in regions: what their backwards compute again, and what they compute."""

from __future__ import annotations

import random

import pytest
import torch
from torch.nn import functional as F

import thunder
from autograd.random_steps import outcome, random_step
from sweeping import one_in
from thunder.ir.symbol import BoundSymbolTag

pytestmark = pytest.mark.xdist_group("inductor")


def test_no_region_has_calls_of_the_forward_beside_those_that_run_again() -> None:
    """In one region TorchInductor would see that they are equal, and keep the values."""

    def step(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        h = x
        for _ in range(3):
            h = F.gelu(h @ w) * torch.sigmoid(h)
        loss = h.square().mean()
        loss.backward()
        return loss.detach()

    compiled = thunder.jit(step)
    compiled(torch.randn(64, 16), torch.randn(16, 16, requires_grad=True))
    mixed, again = 0, 0
    for region in thunder.last_traces(compiled)[-1].bound_symbols:
        tags = [call.own_tags for call in region.subsymbols] if region.sym.is_fusion else []
        if any(BoundSymbolTag.COMPUTED_AGAIN in t for t in tags):
            again += 1
            mixed += any(BoundSymbolTag.BACKWARD not in t for t in tags[:-1])  # the gradient's copy ends it
    assert again
    assert not mixed


@pytest.mark.parametrize("block", one_in(32, range(32)))
def test_random_steps_compute_what_eager_computes(block: int, whole_run: bool) -> None:
    for seed in range(2 if whole_run else 1):
        program, text = random_step(random.Random(100 * block + seed))
        expected = outcome(program)
        results = outcome(thunder.jit(program))
        torch.testing.assert_close(results, expected, msg=lambda m, t=text: f"{m}\n{t}")
