"""Patterns find sequences of calls."""

from __future__ import annotations

import pytest

from ir.building import traced
from thunder.base.errors import InvalidArgument
from thunder.core.patterns import Pattern
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


def test_a_step_gives_back_calls_that_a_later_step_needs():
    def program(x):
        return prims.exp(prims.exp(prims.exp(prims.sin(x))))

    pattern = (
        Pattern().match(is_("sin")).match(reads_the_last("exp"), max_times=9).match(reads_the_last("exp"))
    )
    assert found(pattern, program, "x") == [["t0", "t1", "t2", "t3"]]
    twice = pattern.match(reads_the_last("exp"))
    assert found(twice, program, "x") == [["t0", "t1", "t2", "t3"]]
    assert found(twice.match(reads_the_last("exp")), program, "x") == []


def test_an_optional_step_is_left_out_if_the_rest_fits_only_without_it():
    def program(x):
        return prims.cos(prims.sin(x)), prims.exp(x)

    def first(bsym, previous, context):
        return bsym.sym.name == "sin", {}

    pattern = Pattern().match(first).match(is_("exp"), min_times=0).match(is_("cos"))
    assert found(pattern, lambda x: program(x)[0], "x") == [["t0", "t1"]]
    assert found(pattern, lambda x: (prims.exp(x), program(x)[0])[1], "x") == [["t1", "t2"]]
    assert found(pattern, program, "x") == [["t0", "t1"]]


def test_a_later_call_is_taken_where_the_nearest_leads_nowhere():
    def program(x, y):
        a, b = prims.exp(x), prims.exp(y)
        return prims.sin(x), a, b, prims.cos(prims.exp(prims.exp(y))), prims.tan(b)

    def any_exp(bsym, previous, context):
        return bsym.sym.name == "exp", {"last": bsym.output.name}

    def tan_of_it(bsym, previous, context):
        return bsym.sym.name == "tan" and bsym.args[0].name == context["last"], {}

    assert found(Pattern().match(any_exp).match(tan_of_it), program, "x", "y") == [["t1", "t6"]]

    def started(x, y):
        return prims.sin(x), *program(x, y)

    pattern = Pattern().match(is_("sin")).match(any_exp).match(tan_of_it)
    assert found(pattern, started, "x", "y") == [["t0", "t2", "t7"]]


def test_facts_of_a_choice_that_was_given_up_are_not_seen():
    seen = []

    def exp_of(bsym, previous, context):
        return bsym.sym.name == "exp", {bsym.output.name: True}

    def last(bsym, previous, context):
        seen.append(sorted(context))
        return bsym.sym.name == "cos" and bsym.args[0].name in context, {}

    def program(x):
        a, b = prims.exp(x), prims.exp(prims.neg(x))
        return prims.sin(a), prims.cos(b)

    pattern = Pattern().match(is_("exp"), min_times=0).match(exp_of).match(last)
    assert found(pattern, program, "x") == [["t0", "t2", "t4"]]
    assert found(Pattern().match(exp_of).match(last), program, "x") == [["t2", "t4"]]
    assert ["t0"] in seen
    assert ["t2"] in seen
    assert all(len(facts) == 1 for facts in seen)


def test_a_range_of_times_that_is_none_is_refused():
    with pytest.raises(InvalidArgument, match="cannot match 2 to 1 times"):
        Pattern().match(is_("sin"), min_times=2)
