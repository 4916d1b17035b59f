"""Gradients that stay in a process are communicated once, and discarded when gradients are."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

import thunder
from distributed.trainings import distance, gradients_of
from thunder.distributed import ddp, fsdp, run_ranks


class Both:
    """A layer of one process, and the same one in two ranks; `x` has a batch for each."""

    def __init__(self, transform) -> None:
        torch.manual_seed(0)
        self.plain = nn.Linear(3, 5).double()
        self.compiled = thunder.jit(copy.deepcopy(self.plain), transforms=[transform()])
        self.batches = [torch.randn(2, 4, 3, dtype=torch.float64) for _ in range(4)]

    def loss(self, index: int) -> torch.Tensor:
        """Return the loss of this rank's part of a batch."""
        return self.compiled(self.batches[index][dist.get_rank()]).square().mean()

    def local_loss(self, index: int) -> torch.Tensor:
        """Return the loss, whose gradient stays in this rank."""
        with self.compiled.no_sync():
            return self.loss(index)

    def zero(self, to_none: bool = True) -> None:
        """Discard the gradients of the ranks."""
        self.compiled.zero_grad(set_to_none=to_none)

    def difference(self, *indices: int) -> float:
        """Return how far gradients are from those of one process for some batches."""
        self.plain.zero_grad()
        sum(self.plain(self.batches[i]).square().mean() for i in indices).backward()
        return distance(gradients_of(self.compiled), gradients_of(self.plain))


def several_calls_in_a_backward(both: Both) -> float:
    (both.local_loss(0) + both.local_loss(1)).backward()
    both.loss(2).backward()
    return both.difference(0, 1, 2)


def calls_of_both_modes_in_a_backward(both: Both) -> float:
    (both.local_loss(0) + both.loss(1)).backward()
    both.loss(2).backward()
    return both.difference(0, 1, 2)


def calls_of_both_modes_in_the_other_order(both: Both) -> float:
    first = both.loss(1)
    (first + both.local_loss(0)).backward()
    both.loss(2).backward()
    return both.difference(0, 1, 2)


def discarded(both: Both) -> float:
    both.local_loss(0).backward()
    both.zero()
    both.local_loss(1).backward()
    both.loss(2).backward()
    return both.difference(1, 2)


def discarded_in_place(both: Both) -> float:
    both.loss(3).backward()
    both.zero(to_none=False)
    both.local_loss(0).backward()
    both.zero(to_none=False)
    both.local_loss(1).backward()
    both.loss(2).backward()
    return both.difference(1, 2)


def replaced_by_another(both: Both) -> float:
    both.local_loss(0).backward()
    for parameter in both.compiled.parameters():
        parameter.grad = torch.zeros_like(parameter)
    both.loss(1).backward()
    return both.difference(1)


PROGRAMS = (
    several_calls_in_a_backward,
    calls_of_both_modes_in_a_backward,
    calls_of_both_modes_in_the_other_order,
    discarded,
    discarded_in_place,
    replaced_by_another,
)


@pytest.mark.parametrize("transform", [ddp, fsdp])
def test_gradients_of_ranks_are_those_of_one_process(transform):
    def program():
        return [run(Both(transform)) for run in PROGRAMS]

    for differences in run_ranks(program, 2):
        assert differences == pytest.approx([0.0] * len(PROGRAMS), abs=1e-12)
