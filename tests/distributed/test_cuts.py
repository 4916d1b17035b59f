"""Where programs are cut: parts of nearly equal cost, at few values."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from distributed import pipeline_cases
from distributed.pipeline_cases import model, tokens
from thunder.distributed import pipeline, run_ranks
from thunder_distributed.pipelines.balance import TOLERANCE, balanced


def _largest(costs: list[int], begins: tuple[int, ...]) -> int:
    bounds = [0, *begins, len(costs)]
    return max(sum(costs[a:b]) for a, b in itertools.pairwise(bounds))


@pytest.mark.parametrize("seed", range(30))
def test_the_division_is_the_cheapest_of_all(seed: int):
    r = random.Random(seed)
    costs = [r.randrange(20) for _ in range(r.randrange(1, 9))]
    cuts = [r.randrange(5) for _ in costs]
    parts = r.randrange(1, len(costs) + 1)
    every = list(itertools.combinations(range(1, len(costs)), parts - 1))
    least = min(_largest(costs, begins) for begins in every)
    near = [begins for begins in every if _largest(costs, begins) <= (1 + TOLERANCE) * least]
    found = tuple(balanced(costs, parts, cuts))
    assert found in near
    assert sum(cuts[b] for b in found) == min(sum(cuts[b] for b in begins) for begins in near)


def test_blocks_are_cut_where_one_value_passes():
    def program():
        step = pipeline(model(), pipeline_cases.loss, microbatches=1, executors=["torch"])
        step(tokens())
        return step.stages, [len(c.received) for c in step._cutter.programs[0].cut.stages]

    (stages, received), _ = run_ranks(program, 2)
    assert stages[0].startswith("blocks.2.norm.")
    assert received == [0, 1]


def test_the_first_program_says_where_stages_begin():
    def program():
        step = pipeline(
            model(), pipeline_cases.loss, microbatches=2, stages=["blocks.1"], executors=["torch"]
        )
        step(tokens())
        names = {name for name, _ in step.named_parameters()}
        step(torch.cat([tokens()] * 3))
        return names, {name for name, _ in step.named_parameters()}, step.stages

    (first, again, stages), (second, _, _) = run_ranks(program, 2)
    assert stages == ("blocks.1",)
    assert (
        first
        == again
        == {name for name in first | second if not name.startswith(("blocks.1", "blocks.2", "blocks.3"))}
    )
    assert "blocks.0.up.weight" in first
