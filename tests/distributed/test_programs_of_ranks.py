"""Which programs are the same text in each process, and which are of one rank."""

from __future__ import annotations

import re

import pytest
import torch
import torch.distributed as dist
from torch import nn

import thunder
from distributed.conftest import pretended
from distributed.context_models import language_model, texts
from thunder.distributed import (
    FSDPBucketingStrategy,
    FSDPType,
    column_parallel,
    context_parallel,
    ddp,
    fsdp,
    row_parallel,
)

SIZE = 4


def divided(**options):
    return [column_parallel(target_modules=["0"]), row_parallel(target_modules=["3"], **options)]


#: layout → its transforms
LAYOUTS = {
    "ddp": lambda: [ddp()],
    "ZeRO-2": lambda: [fsdp()],
    "ZeRO-3": lambda: [
        fsdp(sharding_strategy=FSDPType.ZERO3, bucketing_strategy=FSDPBucketingStrategy.LAYER)
    ],
    "tensor parallel": divided,
    "sequence parallel": lambda: divided(sequence_dim=1),
}


def programs_of_ranks(model, transforms, arguments) -> list[str]:
    """Return the prologue, the forward and the backward of the first and the last rank, as text."""
    texts = []
    for rank in (0, SIZE - 1):
        with pretended(SIZE, rank):
            torch.manual_seed(0)
            compiled = thunder.jit(model(), transforms=transforms(), executors=["torch"])
            compiled(*arguments).sum().backward()
            traces = (
                thunder.last_prologue_traces(compiled),
                thunder.last_traces(compiled),
                thunder.last_backward_traces(compiled),
            )
            text = "\n".join(passes[-1].python() for passes in traces)
            texts.append(re.sub(r"took \d+ milliseconds", "", text))
    return texts


def uneven() -> nn.Module:
    """Return a model whose layers no number of processes divides, with dropout."""
    return nn.Sequential(nn.Linear(8, 15), nn.ReLU(), nn.Dropout(0.1), nn.Linear(15, 8))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_program_is_the_same_text_in_each_process(layout: str):
    first, last = programs_of_ranks(uneven, LAYOUTS[layout], (torch.ones(2, 8, 8),))
    assert "agree(" in first
    assert first == last


def test_the_program_of_a_divided_sequence_is_of_one_rank():
    first, last = programs_of_ranks(
        language_model, lambda: [context_parallel(divide={"tokens": 1})], texts(1)[0]
    )
    assert "torch.narrow(tokens, 1, 0, 2)" in first
    assert "torch.narrow(tokens, 1, 0, 2)" not in last
    assert not dist.is_initialized()
