"""Random numbers: the same seed gives the same numbers as eager, in the same order, at every call."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import thunder
from soundness.harness import Cases, check_case, ramp, world

PROGRAMS = {
    "rand": lambda x: torch.rand(3) + x,
    "rand_like": lambda x: torch.rand_like(x),
    "randn": lambda x: torch.randn(2, 3),
    "randn_dtype": lambda x: torch.randn(3, dtype=torch.float64),
    "randn_like": lambda x: torch.randn_like(x),
    "randint": lambda x: torch.randint(0, 10, (5,)),
    "randperm": lambda x: torch.randperm(6),
    "bernoulli": lambda x: torch.bernoulli(torch.full((4,), 0.5)),
    "multinomial": lambda x: torch.multinomial(torch.ones(5), 3),
    "dropout": lambda x: F.dropout(x, 0.4),
    "dropout_off": lambda x: F.dropout(x, 0.4, training=False),
    "dropout_all": lambda x: (F.dropout(x, 1.0), F.dropout(x, 0.0)),
    "uniform_": lambda x: torch.empty(3).uniform_(-1, 1),
    "normal_": lambda x: torch.empty(3).normal_(1.0, 2.0),
    "two_in_order": lambda x: (torch.rand(2), torch.randn(2), torch.rand(2)),
    "unused_draw_keeps_its_place": lambda x: (torch.rand(7), torch.rand(2))[1],
    "equal_draws_are_not_merged": lambda x: torch.rand(3) - torch.rand(3),
    "in_a_loop": lambda x: sum(F.dropout(x, 0.5) * i for i in range(3)),
    "shape_of_a_draw": lambda x: torch.rand(4).shape[0] + x,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_seed_gives_eagers_numbers(name):
    rows = Cases()
    rows()(lambda: world(PROGRAMS[name], ramp(3)))
    check_case(rows[0], None, thunder)


def test_calls_draw_on():
    compiled = thunder.jit(lambda x: F.dropout(x, 0.5))
    x = ramp(64)
    torch.manual_seed(5)
    expected = [F.dropout(x, 0.5) for _ in range(3)]
    torch.manual_seed(5)
    assert all(torch.equal(compiled(x), e) for e in expected)
    assert thunder.cache_hits(compiled) == 2
