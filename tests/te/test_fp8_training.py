"""A small Llama that is trained in FP8 learns as well as in bfloat16."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import thunder
from demo import batches, loss_of, text
from llama import Llama, LlamaConfig
from thunder.executors.transformer_engineex import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
    TransformerEngineTransform,
    autocast,
    fp8_reference_ex,
)

ROWS, LENGTH, SEEDS = 4, 32, range(3)


def mean_loss(recipe: Any, steps: int) -> float:
    """The mean of several trainings: the loss of one depends on every rounding, by up to 2 %."""
    return sum(held_out_loss(recipe, seed, steps) for seed in SEEDS) / len(SEEDS)


def held_out_loss(recipe: Any, seed: int, steps: int) -> float:
    """The loss on held-out text after some steps; without a recipe, in bfloat16 alone."""
    torch.manual_seed(seed)
    model = Llama(LlamaConfig(layers=1, context=LENGTH, width=64, heads=4, hidden=128, tied_head=False))
    state = [TransformerEngineTransform(amax_history_len=16)] if isinstance(recipe, DelayedScaling) else []
    compiled = thunder.jit(model, executors=[fp8_reference_ex], transforms=state)
    training, rest = text()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    data = batches(training, ROWS, LENGTH, 0)
    with autocast(recipe is not None, recipe=recipe), torch.autocast("cpu", torch.bfloat16):
        for _ in range(steps):
            loss_of(compiled, *next(data)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        with torch.no_grad():
            tokens, targets = next(batches(rest, 64, LENGTH, 1))
            loss = loss_of(compiled, tokens, targets).item()
    claimed = {row.symbol for row in thunder.explain(compiled).rows if row.claimed_by == "fp8_reference"}
    assert bool(claimed) == (recipe is not None)
    return loss


@pytest.fixture(scope="module")
def steps(whole_run: bool) -> int:
    return 120 if whole_run else 50


@pytest.fixture(scope="module")
def in_bfloat16(steps: int) -> float:
    return mean_loss(None, steps)


@pytest.mark.parametrize(
    "recipe",
    [
        DelayedScaling(amax_history_len=16),
        pytest.param(Float8CurrentScaling(), marks=pytest.mark.sweep),
        pytest.param(Float8BlockScaling(), marks=pytest.mark.sweep),
        pytest.param(MXFP8BlockScaling(), marks=pytest.mark.sweep),
    ],
    ids=lambda recipe: type(recipe).__name__,
)
def test_the_held_out_loss_is_within_one_percent_of_bfloat16s(recipe, in_bfloat16: float, steps: int):
    assert mean_loss(recipe, steps) == pytest.approx(in_bfloat16, rel=0.01)
