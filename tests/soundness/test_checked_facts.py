"""Each check of prologues has a mutator. The next call does what eager does, or is refused."""

from __future__ import annotations

import pytest

import thunder
from comparison.errors import is_a
from soundness.checked_facts import ADDED, MUTATORS
from soundness.graph import Slot
from soundness.harness import Outcome, World, call, compare_errors
from soundness.object_facts import differences, object_facts
from thunder.base.errors import PluginError
from thunder.frontend.facts import Fact
from thunder.frontend.guards import LOST
from thunder.ops.prims import CHECKS


def test_each_check_has_a_mutator():
    assert {f"prims.{name}" for name in MUTATORS} == {*CHECKS}


def _is_violated(fact: Fact, args: list[object]) -> bool:
    try:
        return fact.failure({"args": tuple(args), "kwargs": {}}) is not None
    except LOST:
        return True


@pytest.mark.parametrize("name", MUTATORS)
def test_a_violated_fact_is_noticed(name):
    theirs, ours = MUTATORS[name](), MUTATORS[name]()
    compiled = thunder.jit(ours.program, **ours.options)

    def outcomes() -> tuple[Outcome, Outcome]:
        return call(theirs.program, World(theirs.program, theirs.args)), call(
            compiled, World(compiled, ours.args)
        )

    for _ in range(2):
        expected, found = outcomes()
        assert found.error is None, found.error
        assert not _differences(expected, found)
    entry = thunder.compile_stats(compiled).interpreter_cache[-1]
    facts = [fact for fact in entry.guards if fact.sym.name == name]
    assert facts, "the program has no such fact"
    assert not any(_is_violated(fact, ours.args) for fact in facts)
    theirs.violate()
    ours.violate()
    assert any(_is_violated(fact, ours.args) for fact in facts)
    misses = thunder.cache_misses(compiled)
    expected, found = outcomes()
    assert thunder.cache_misses(compiled) == misses + 1
    if name in ADDED:  # the transform adds the check again
        assert isinstance(found.error, PluginError)
    elif not is_a(found.error, "UnsupportedProgram"):
        assert not (compare_errors(expected, found) if found.error else _differences(expected, found))


def _differences(expected: Outcome, found: Outcome) -> list[str]:
    return differences(*(object_facts([Slot("result", o.value, print)]) for o in (expected, found)))
