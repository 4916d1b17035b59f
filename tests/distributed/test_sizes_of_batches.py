"""A program is compiled once for many sizes, also where ranks have different ones."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.distributed as dist
from torch import nn

import thunder
from distributed.trainings import distance, gradients_of
from thunder.distributed import column_parallel, ddp, fsdp, row_parallel, run_ranks


class Network(nn.Module):
    """Two layers, a number and a view that needs an even number of rows."""

    def __init__(self, pairs: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.up, self.down, self.pairs = nn.Linear(4, 6), nn.Linear(6, 4), pairs
        self.double()

    def forward(self, x, count: int, *, mask):
        y = self.down(torch.relu(self.up(x))) * count + mask
        if self.pairs:
            y = y.view(-1, 2, 4).flatten(1)
        return y.square().sum() / x.shape[0]


def losses_and_compiles(transforms, sizes, is_data_parallel, pairs=False):
    """Return the largest difference from one process for some sizes of the parts, and numbers of compiles."""
    plain = Network(pairs)
    compiled = thunder.jit(copy.deepcopy(plain), transforms=transforms)
    rank, misses, worst = dist.get_rank(), [], 0.0
    for step, rows in enumerate(sizes):
        torch.manual_seed(step)
        parts = [
            (torch.randn(n, 4, dtype=torch.float64), torch.randn(n, 1, dtype=torch.float64)) for n in rows
        ]
        compiled.zero_grad(), plain.zero_grad()
        own = rank if is_data_parallel else 0
        x, mask = parts[own]
        loss = compiled(x, step, mask=mask)
        loss.backward()
        expected = [plain(x, step, mask=mask) for x, mask in parts]
        (sum(expected) / len(expected)).backward()
        worst = max(worst, (loss - expected[own]).abs().item())
        worst = max(worst, distance(gradients_of(compiled), gradients_of(plain)))
        misses.append(thunder.cache_misses(compiled))
    return worst, misses


@pytest.mark.parametrize("transform", [ddp, fsdp])
def test_ranks_with_other_sizes_train_with_one_program_for_all(transform):
    sizes = [(7, 8), (7, 8), (3, 5), (7, 2), (4, 4), (9, 6), (2, 3)]
    for worst, misses in run_ranks(lambda: losses_and_compiles([transform()], sizes, True), 2):
        assert worst < 1e-11
        assert misses == [1, 2, 3, 3, 3, 3, 3]  # the second one for a number that differs


def test_a_rank_whose_batch_is_ragged_compiles_alone():
    sizes = [(8, 8), (8, 8), (8, 8), (8, 7), (8, 5)]
    first, second = run_ranks(lambda: losses_and_compiles([fsdp()], sizes, True), 2)
    assert max(first[0], second[0]) < 1e-11
    assert (first[1], second[1]) == ([1, 2, 2, 2, 2], [1, 2, 2, 3, 3])


def test_what_a_program_needs_of_a_size_is_checked():
    def program():
        sizes = [(4, 4), (6, 6), (8, 2), (3, 3), (2, 8)]
        with pytest.raises(RuntimeError, match="invalid for input of size"):
            losses_and_compiles([fsdp()], sizes, True, pairs=True)
        return losses_and_compiles([fsdp()], [*sizes[:3], (2, 8)], True, pairs=True)

    for worst, misses in run_ranks(program, 2):
        assert worst < 1e-11
        assert misses == [1, 2, 2, 2]


@pytest.mark.parametrize("sequence_dim", [None, 0])
def test_layers_in_parts_are_divided_for_sizes_that_vary(sequence_dim):
    def program():
        transforms = [
            column_parallel(target_modules=["up"]),
            row_parallel(target_modules=["down"], sequence_dim=sequence_dim),
        ]
        sizes = [(4,), (4,), (6,), (8,), (3,), (5,), (2,), (7,), (1,)]
        return losses_and_compiles(transforms, sizes, False)

    for worst, misses in run_ranks(program, 2):
        assert worst < 1e-11
        assert misses[-1] <= (4 if sequence_dim is None else 6)


class Several(nn.Module):
    """A layer with two results, of which a loss may read one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = (nn.Linear(4, 4).double() for _ in range(2))

    def forward(self, x):
        return self.first(x), self.second(x)


def test_results_without_a_cotangent_have_the_size_of_the_call():
    def program():
        plain, compiled = Several(), thunder.jit(Several(), transforms=[fsdp()])
        worst = 0.0
        for rows in (2, 3, 5, 4):
            x = torch.randn(rows, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(rows))
            for module in (plain, compiled):
                for parameter in module.parameters():
                    parameter.grad = torch.zeros_like(parameter)
                module(x)[rows % 2].sin().sum().backward()
            worst = max(worst, distance(gradients_of(compiled), gradients_of(plain)))
        return worst, thunder.cache_misses(compiled)

    for worst, misses in run_ranks(program, 2):
        assert worst < 1e-12
        assert misses == 2
