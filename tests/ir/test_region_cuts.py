"""Long regions are cut at equal places, so that the layers of a model are equal regions."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import thunder
from thunder.core.trace import TraceCtx
from thunder.extend import Cuts, Region, partition, structural_key

SMALL = {"torch.add", "torch.sin", "torch.mul", "torch.matmul"}
AFTER_PRODUCTS = Cuts(after=lambda bsym: bsym.sym.id == "torch.matmul", calls=4, values=2, repeats=3)


def layers(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = x + 1
    for _ in range(6):
        x = x + (torch.sin(x) * 2) @ w
    return x * 3


def program() -> TraceCtx:
    compiled = thunder.jit(layers, executors=["torch"])
    compiled(torch.ones(3, 3), torch.ones(3, 3))
    return thunder.last_traces(compiled)[0]


def regions(trace: TraceCtx, cuts: Cuts | None) -> list[Region]:
    return partition(trace, lambda bsym: bsym.sym.id in SMALL, cuts=cuts)


def test_the_layers_of_a_model_are_equal_regions() -> None:
    trace = program()
    (whole,) = regions(trace, None)
    parts = regions(trace, AFTER_PRODUCTS)
    assert [len(region.bsyms) for region in parts] == [4, 4, 4, 4, 4, 4, 2]
    assert [bsym for region in parts for bsym in region.bsyms] == list(whole.bsyms)
    assert len({structural_key(region) for region in parts[1:-1]}) == 1


def test_a_part_has_as_many_layers_as_it_needs_for_the_fewest_calls() -> None:
    parts = regions(program(), replace(AFTER_PRODUCTS, calls=5, repeats=2))
    assert [len(region.bsyms) for region in parts] == [4, 8, 8, 6]
    assert structural_key(parts[1]) == structural_key(parts[2])


@pytest.mark.parametrize(
    "cuts",
    [
        replace(AFTER_PRODUCTS, calls=13),
        replace(AFTER_PRODUCTS, repeats=6),
        replace(AFTER_PRODUCTS, values=1),
        replace(AFTER_PRODUCTS, after=lambda bsym: False),
    ],
    ids=["short", "seldom", "values", "nowhere"],
)
def test_a_region_is_whole_where_it_may_not_be_cut(cuts: Cuts) -> None:
    assert len(regions(program(), cuts)) == 1
