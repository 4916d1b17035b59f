"""Every order of a program's graph computes what the program does: views, writes, random numbers, modes."""

from __future__ import annotations

import random

import pytest
import torch

import thunder.torch as ltorch
from ir.building import EAGER, traced
from ir.example_symbols import like, toy
from sweeping import one_in
from thunder.base.tags import OpTags
from thunder.executors.passes import del_last_used, transform_for_execution
from thunder.ir.dataflow import TOPOSORT_ORDER, bsym_list_to_dag, toposort_bsym_dag
from thunder.ir.trace import from_trace
from thunder.ops import prims

VIEWS = (
    lambda x: ltorch.transpose(x, 0, 1),
    lambda x: ltorch.reshape(x, (2, 8)) if x.numel == 16 else ltorch.reshape(x, (-1,)),
    lambda x: x[1:3],
    lambda x: ltorch.unsqueeze(x, 0),
    lambda x: ltorch.flatten(x),
)
READS = (ltorch.sin, ltorch.neg, ltorch.sum, lambda x: x * x, lambda x: x[:1] + 1)
WRITES = (lambda x: x.mul_(0.5), lambda x: x.add_(1.0), lambda x: x.copy_(ltorch.cos(x)), lambda x: x.zero_())
RANDOM = (lambda: ltorch.rand(2), lambda: ltorch.bernoulli(ltorch.rand(2)))


def random_program(seed):
    """A program of views, reads, writes and random numbers on two inputs, which may overlap."""
    draw = random.Random(seed)

    def program(a, b):
        tensors, results = [a, b], []
        for _ in range(draw.randrange(4, 14)):
            x = draw.choice(tensors)
            match draw.choice(["view", "view", "read", "read", "write", "write", "random"]):
                case "view":
                    views = VIEWS if x.ndim == 2 else VIEWS[3:]
                    tensors.append(draw.choice(views)(x))
                case "read":
                    results.append(draw.choice(READS if x.ndim == 2 else READS[:4])(x))
                    tensors += [results[-1]] if results[-1].ndim == 2 else []
                case "write":
                    draw.choice(WRITES)(x)
                case "random":
                    results.append(draw.choice(RANDOM)())
        return (*results, tensors[-1])

    return program


def run(trace):
    """What a trace computes, and its inputs afterwards; one is the memory of the other's first rows."""
    memory = torch.linspace(-1, 1, 24)
    inputs = memory[:16].view(4, 4), memory[8:].view(4, 4)
    torch.manual_seed(0)
    return [x.clone() for x in trace.python_callable()(*inputs)], memory


@pytest.mark.parametrize("are_claimed", [False, True], ids=["as written", "as it runs"])
@pytest.mark.parametrize("seed", one_in(50, range(500)))
def test_every_order_of_a_random_program_computes_the_same(seed, are_claimed):
    trace = traced(random_program(seed), "a", "b", shape=(4, 4))
    if are_claimed:
        trace = del_last_used(transform_for_execution(trace, EAGER))
    expected, memory = run(trace if are_claimed else transform_for_execution(trace, EAGER))
    roots, leaves = bsym_list_to_dag(trace.bound_symbols)
    draw = random.Random(seed)
    for direction, start in [(TOPOSORT_ORDER.TOP_DOWN, roots), (TOPOSORT_ORDER.BOTTOM_UP, leaves)] * 3:
        reordered = from_trace(trace)
        reordered.bound_symbols = toposort_bsym_dag(start, direction, lambda e: draw.randrange(len(e)))
        assert len(reordered.bound_symbols) == len(trace.bound_symbols)
        results, memory_after = run(reordered if are_claimed else transform_for_execution(reordered, EAGER))
        torch.testing.assert_close(results, expected, rtol=0, atol=0)
        torch.testing.assert_close(memory_after, memory, rtol=0, atol=0)


def positions(program, *names):
    """The indices of statements, by name, in orders that begin at either end."""
    trace = traced(program, *names)
    roots, leaves = bsym_list_to_dag(trace.bound_symbols)
    for start, direction in ((roots, TOPOSORT_ORDER.TOP_DOWN), (leaves, TOPOSORT_ORDER.BOTTOM_UP)):
        for pick in (0, -1):
            placed = toposort_bsym_dag(start, direction, lambda e, pick=pick: pick % len(e))
            yield {bsym.sym.name: i for i, bsym in enumerate(placed)}


def test_a_read_of_the_base_stays_after_a_write_to_a_view():
    def program(x):
        ltorch.transpose(x, 0, 0).add_(1.0)
        return prims.sin(x)

    assert all(p["add_"] < p["sin"] for p in positions(program, "x"))


def test_a_return_stays_after_writes_and_printed_lines():
    show = toy("show", lambda x: None, tags=frozenset({OpTags.DONT_DCE}))
    write = toy("write", like, tags=frozenset({OpTags.IN_PLACE}))

    def program(x, y):
        a = prims.sin(x)
        show(x)
        write(y)
        return a

    for p in positions(program, "x", "y"):
        assert p["show"] < p["write"] < p["python_return"]


def test_calls_stay_on_their_side_of_a_change_of_the_grad_mode():
    def program(x):
        a = prims.sin(x)
        prims.set_grad_enabled(False)
        b = prims.cos(x)
        prims.set_grad_enabled(True)
        return a, b, prims.exp(x)

    trace = traced(program, "x")
    roots, leaves = bsym_list_to_dag(trace.bound_symbols)
    for start, direction in ((roots, TOPOSORT_ORDER.TOP_DOWN), (leaves, TOPOSORT_ORDER.BOTTOM_UP)):
        placed = toposort_bsym_dag(start, direction, lambda e: len(e) - 1)
        assert [b.sym.name for b in placed] == [b.sym.name for b in trace.bound_symbols]


def test_independent_calls_of_a_program_that_writes_may_change_places():
    def program(x):
        a = prims.exp(prims.abs(x))
        b = ltorch.zeros((4,))
        b.add_(1.0)
        return a, b

    orders = list(positions(program, "x"))
    assert {p["exp"] < p["add_"] for p in orders} == {True, False}
