"""Patterns find sequences of calls."""

from __future__ import annotations

import pytest

from ir.building import traced
from thunder.base.errors import InvalidArgument
from thunder.ir.patterns import Pattern
from thunder.ops import prims


def is_(name):
    """A matcher of calls of one name."""
    return lambda bsym, previous, context: (bsym.sym.name == name, {})


def reads_the_last(name):
    """A matcher of calls of one name that read the result of the call matched before."""

    def matcher(bsym, previous, context):
        last = previous[-1][1].output.name
        return bsym.sym.name == name and any(p.name == last for p in bsym.flat_proxy_args), {}

    return matcher


def found(pattern, program, *inputs) -> list[list[str]]:
    matches = pattern(traced(program, *inputs))
    return [[bsym.output.name for _, bsym in match] for match in matches]


def test_every_occurrence_is_found_in_order():
    def program(x):
        a = prims.cos(prims.sin(x))
        return prims.cos(prims.sin(prims.exp(a)))

    pattern = Pattern().match(is_("sin")).match(reads_the_last("cos"))
    assert found(pattern, program, "x") == [["t0", "t1"], ["t3", "t4"]]


def test_positions_are_those_of_the_trace():
    trace = traced(lambda x: prims.cos(prims.sin(prims.exp(x))), "x")
    (match,) = Pattern().match(is_("sin")).match(is_("cos"))(trace)
    assert [i for i, _ in match] == [1, 2]


def test_calls_between_that_have_nothing_to_do_with_the_match_are_passed_over():
    def program(x, y):
        a = prims.sin(x)
        b = prims.exp(y)
        return prims.cos(a), b

    pattern = Pattern().match(is_("sin")).match(reads_the_last("cos"))
    assert found(pattern, program, "x", "y") == [["t0", "t2"]]


def test_a_call_between_that_reads_the_match_and_feeds_its_end_prevents_it():
    def program(x):
        a = prims.sin(x)
        b = prims.exp(a)
        return prims.add(a, b)

    pattern = Pattern().match(is_("sin")).match(is_("add"))
    assert found(pattern, program, "x") == []


def test_a_step_may_repeat_and_may_be_absent():
    def program(x):
        return prims.cos(prims.exp(prims.exp(prims.sin(x)))), prims.cos(prims.sin(x))

    pattern = (
        Pattern()
        .match(is_("sin"))
        .match(reads_the_last("exp"), min_times=0, max_times=3)
        .match(reads_the_last("cos"))
    )
    assert found(pattern, program, "x") == [["t0", "t1", "t2", "t3"], ["t4", "t5"]]


def test_a_call_belongs_to_one_match():
    def program(x):
        return prims.add(prims.sin(x), prims.sin(x))

    assert found(Pattern().match(is_("sin")).match(is_("add")), program, "x") == [["t0", "t2"]]


def test_facts_of_earlier_steps_reach_later_ones():
    def first(bsym, previous, context):
        return bsym.sym.name == "sin", {"input": bsym.args[0].name}

    def second(bsym, previous, context):
        return bsym.sym.name == "mul" and bsym.args[1].name == context["input"], {}

    def program(x, y):
        return prims.mul(prims.sin(x), y), prims.mul(prims.sin(y), y)

    assert found(Pattern().match(first).match(second), program, "x", "y") == [["t2", "t3"]]


def test_a_range_of_times_that_is_none_is_refused():
    with pytest.raises(InvalidArgument, match="cannot match 2 to 1 times"):
        Pattern().match(is_("sin"), min_times=2)
