"""An entry is not used for a call that breaks one of its facts about sizes, on which results depend."""

import random

import pytest

from sweeping import one_in
from symbolic.broken_facts import Subject, other_tensors
from symbolic.deciding_programs import PROGRAMS
from symbolic.fact_outcomes import sources_of
from symbolic.fact_sweep import KINDS

#: facts on which no result depends, since a shape is asked for more than is needed
UNNEEDED = {("all of it", "args[0].shape[0] >= 1")}


def _assert_right(verdicts, kinds):
    verdicts = list(verdicts)
    faults = [(verdict.fact, fault) for verdict in verdicts for fault in verdict.faults]
    assert not faults
    assert {verdict.kind for verdict in verdicts} <= {*kinds}
    return verdicts


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", one_in(100, range(300)))
def test_a_call_that_breaks_a_fact_of_a_random_program_computes_what_eager_computes(kind, seed):
    _assert_right(KINDS[kind](seed), ("needed", "implied", "refused", "unneeded"))


def _subject(name):
    program, calls = PROGRAMS[name]
    mode = "symbolic values" if len(calls) == 1 else "automatic"
    return Subject(program, calls[-1], [sources_of(call) for call in calls[:-1]], cache=mode)


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_a_fact_that_a_program_decides_on_a_result_is_wrong(name):
    verdicts = _assert_right(
        _subject(name).verdicts(random.Random(0)), ("needed", "implied", "refused", "unneeded")
    )
    assert verdicts, "the program decides on something"
    assert any(verdict.kind == "needed" for verdict in verdicts)
    unneeded = {(name, verdict.fact) for verdict in verdicts if verdict.kind == "unneeded"}
    assert unneeded <= UNNEEDED


@pytest.mark.parametrize("name", one_in(8, PROGRAMS))
def test_another_layout_or_dtype_is_another_entry(name):
    _assert_right(other_tensors(_subject(name)), ("needed", "implied", "refused"))
