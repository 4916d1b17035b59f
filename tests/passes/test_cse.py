"""Common subexpression elimination merges equal expressions, and keeps apart what eager keeps apart."""

from __future__ import annotations

import pytest
import torch

from ir.building import body, compiled, traced
from ir.example_symbols import like, take, toy
from thunder.base.tags import OpTags
from thunder.ops import prims
from thunder.passes.cse import cse


def names(trace) -> list[str]:
    return [b.sym.name for b in trace.bound_symbols]


def test_equal_expressions_are_computed_once():
    trace = cse(traced(lambda x: prims.add(prims.sin(x), prims.sin(x)), "x"))
    assert body(trace) == [
        't0 = prims.sin(x)  # t0: "cpu f32[4]"',
        't2 = prims.add(t0, t0)  # t2: "cpu f32[4]"',
        "return t2",
    ]
    assert trace.get_provenance().pss == "Common Subexpression Elimination"


def test_what_becomes_equal_by_merging_is_merged_too():
    def program(x):
        return prims.add(prims.cos(prims.sin(x)), prims.cos(prims.sin(x)))

    assert names(cse(traced(program, "x"))) == ["sin", "cos", "add", "python_return"]


def test_replaced_values_are_replaced_in_decompositions():
    trace = cse(traced(lambda x: torch.exp(torch.sin(x)) + torch.sin(x), "x"))
    last = trace.bound_symbols[-2]
    assert [p.name for p in last.flat_proxy_args] == [p.name for p in last.subsymbols[0].flat_proxy_args]


@pytest.mark.parametrize(
    ("first", "second"), [(1, 1.0), (1, True), (0.0, -0.0), ((1,), [1]), (None, 0), ("1", 1)], ids=repr
)
def test_constants_that_differ_in_type_or_sign_are_not_equal(first, second):
    trace = traced(lambda x: prims.add(take(x, first), take(x, second)), "x")
    assert names(cse(trace)) == ["take", "take", "add", "python_return"]


def test_nan_is_equal_to_nan():
    trace = traced(lambda x: prims.add(take(x, float("nan")), take(x, float("nan"))), "x")
    assert names(cse(trace)) == ["take", "add", "python_return"]


@pytest.mark.parametrize("inside", [False, True], ids=["itself", "in its decomposition"])
def test_random_operators_are_not_merged(inside):
    draw = toy("draw", like, tags=frozenset({OpTags.RANDOM_OP}))
    outer = toy("outer", lambda x: draw(x), is_prim=False)
    op = outer if inside else draw
    assert names(cse(traced(lambda x: prims.add(op(x), op(x)), "x"))) == [
        op.name,
        op.name,
        "add",
        "python_return",
    ]


def test_prints_are_not_merged():
    def program(x):
        prims.python_print(x)
        prims.python_print(x)
        return x

    assert names(cse(traced(program, "x"))) == ["python_print", "python_print", "python_return"]


@pytest.mark.parametrize("tag", ["IN_PLACE", "CTX_MANAGER_ENTER_EXIT_OP"])
def test_nothing_is_merged_across_a_write_or_a_change_of_mode(tag):
    barrier = toy("barrier", lambda x: None, tags=frozenset({getattr(OpTags, tag)}))

    def program(x):
        a = prims.sin(x)
        barrier(x)
        return prims.add(a, prims.sin(x))

    assert names(cse(traced(program, "x"))) == ["sin", "barrier", "sin", "add", "python_return"]


def test_two_results_keep_memory_of_their_own():
    fn = compiled(traced(lambda x: (torch.sin(x), torch.sin(x)), "x")).fn
    a, b = fn(torch.ones(4))
    a.zero_()
    assert torch.equal(b, torch.ones(4).sin())


def test_a_result_and_a_view_of_its_twin_keep_memory_of_their_own():
    fn = compiled(traced(lambda x: (torch.sin(x), torch.sin(x).reshape(2, 2)), "x")).fn
    a, b = fn(torch.ones(4))
    a.zero_()
    assert torch.equal(b, torch.ones(4).sin().reshape(2, 2))


def test_one_result_may_share_with_values_that_stay_inside():
    trace = traced(lambda x: (torch.sin(x), torch.sin(x) + 1), "x")
    assert names(cse(trace)) == ["sin", "add", "python_return"]


def test_values_that_differ_in_requires_grad_are_not_merged():
    def program(x):
        a = prims.sin(x)
        b = prims.sin(x)
        b.requires_grad = True
        return prims.add(a, b)

    assert names(cse(traced(program, "x"))) == ["sin", "sin", "add", "python_return"]


def test_the_option_switches_the_stage_off():
    trace = traced(lambda x: prims.add(prims.sin(x), prims.sin(x)), "x")
    made_by = [t.get_provenance().pss for t in compiled(trace, options={"cse": False}).traces[1:]]
    assert "Common Subexpression Elimination" not in made_by
    assert "Common Subexpression Elimination" in [t.get_provenance().pss for t in compiled(trace).traces[1:]]
