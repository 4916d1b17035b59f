"""Gathers are issued ahead within limits, and as late as they arrive in time."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import torch
from torch import nn

import thunder
from distributed.test_plans import SIMPLE
from sweeping import one_in
from thunder.core.proxies import FutureTensorProxy
from thunder.distributed import FSDPType, fsdp, plan
from thunder_distributed.roofline import nbytes_of


def layers(*widths: int) -> nn.Module:
    """Return linear layers without biases."""
    return nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(widths)))


def planned(model: nn.Module, rows: int, **options):
    """Return the plan of ZeRO-3 on four processes of the simple machine."""
    x, zero3 = torch.ones(rows, model[0].in_features), fsdp(sharding_strategy=FSDPType.ZERO3)
    return plan(model, x, mesh=(4,), transforms=[zero3], machine=SIMPLE, **options)


def order(trace) -> str:
    """Return the gathers, waits and products of a trace in their order, each with the index of its weight."""
    letters, weights = {"all_gather": "g", "wait": "w", "linear": "l"}, {}
    words = []
    for bsym in trace.bound_symbols:
        if bsym.sym.name in letters:
            weight = bsym.flat_proxy_args[1 if bsym.sym.name == "linear" else 0].name
            index = weights[weight] if weight in weights else weight.split("_")[1]
            if bsym.sym.name != "linear":
                weights[bsym.output.name] = index
            words.append(letters[bsym.sym.name] + index)
    return " ".join(words)


def most_ahead(trace) -> int:
    """Return the most bytes of gathers that are in flight while another statement computes."""
    in_flight, most = {}, 0
    for bsym in trace.bound_symbols:
        if bsym.sym.name == "all_gather" and isinstance(bsym.output, FutureTensorProxy):
            in_flight[bsym.output.name] = bsym.output
        elif bsym.sym.name == "wait":
            in_flight.pop(bsym.args[0].name, None)
        elif bsym.sym.name == "linear":
            most = max(most, nbytes_of(in_flight.values()))
    return most


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"overlap_collectives": 0}, "g0 l0 g1 l1 g2 l2 g3 l3"),
        ({"overlap_collectives": 1}, "g0 w0 g1 l0 w1 g2 l1 w2 g3 l2 w3 l3"),
        ({"overlap_collectives": 3}, "g0 w0 g1 g2 g3 l0 w1 l1 w2 l2 w3 l3"),
        ({"overlap_collectives": 3, "overlap_bytes": 512}, "g0 w0 g1 g2 l0 w1 g3 l1 w2 l2 w3 l3"),
        ({"overlap_collectives": 3, "overlap_bytes": 511}, "g0 w0 g1 l0 w1 g2 l1 w2 g3 l2 w3 l3"),
        ({"overlap_collectives": 3, "overlap_bytes": 255}, "g0 w0 l0 g1 w1 l1 g2 w2 l2 g3 w3 l3"),
        # a product takes 40 * 8 * 8 * 2 seconds, a gather 192 / 0.25: one ahead is enough
        ({"overlap_collectives": 3, "overlap_machine": SIMPLE}, "g0 w0 g1 l0 w1 g2 l1 w2 g3 l2 w3 l3"),
    ],
)
def test_gathers_are_issued_as_early_as_limits_and_the_machine_say(options, expected: str):
    result = planned(layers(8, 8, 8, 8, 8), 40, **options)
    assert order(result.plan.traces[-1]) == expected


def test_a_gather_that_takes_longer_than_the_product_before_it_is_issued_before_others():
    # the last weight has 16 times the bytes of the others: 3072 bytes / 0.25, more than two products
    model = layers(8, 8, 8, 8, 128)
    result = planned(model, 40, overlap_collectives=3, overlap_machine=SIMPLE)
    assert order(result.plan.traces[-1]) == "g0 w0 g1 g2 g3 l0 w1 l1 w2 l2 w3 l3"
    result = planned(model, 80, overlap_collectives=3, overlap_machine=SIMPLE)
    assert order(result.plan.traces[-1]) == "g0 w0 g1 l0 w1 g2 g3 l1 w2 l2 w3 l3"


@pytest.mark.parametrize("seed", one_in(6, range(24)))
def test_the_plan_of_a_machine_is_as_fast_as_that_of_early_gathers_with_less_memory(seed: int):
    draw = random.Random(seed)
    model = layers(*(draw.choice([4, 8, 16, 32]) for _ in range(7)))
    rows, limit = draw.choice([2, 8, 32]), draw.choice([300, 1500, 6000])
    none, one, early = (planned(model, rows, overlap_collectives=depth) for depth in (0, 1, 4))
    assert early.seconds <= one.seconds < none.seconds
    late = planned(model, rows, overlap_collectives=4, overlap_machine=SIMPLE)
    assert late.seconds == early.seconds
    assert late.peak <= early.peak
    limited = planned(model, rows, overlap_collectives=4, overlap_bytes=limit)
    assert most_ahead(limited.plan.traces[-1]) <= min(limit, most_ahead(early.plan.traces[-1]))
    assert limited.seconds <= none.seconds
    assert sorted(limited.communication, key=str) == sorted(early.communication, key=str)


def test_a_limit_and_a_machine_are_checked():
    with pytest.raises(thunder.InvalidArgument, match="overlap_bytes"):
        planned(layers(8, 8), 2, overlap_bytes="1 GiB")
    with pytest.raises(
        thunder.InvalidArgument, match="no arithmetic and links are known of the device 'tpu'"
    ):
        planned(layers(8, 8), 2, overlap_machine="tpu")
