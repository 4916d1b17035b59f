"""The mutation suite: each single fact of a program's world is changed after the program was compiled, and
the next call must do what eager does in the changed world. A stale result is the worst fault there is.

A default run makes some of the changes of each program; ``hatch run sweep mutations`` makes all.
"""

from __future__ import annotations

import re

import pytest

import thunder
from recorded_refusals import refusals_as_recorded
from soundness.example_programs import PROGRAMS
from soundness.harness import call, compare
from soundness.mutator import after_change, along_a_walk, changes
from sweeping import spread_over

#: Kinds of facts about values and structure. The others are about functions, classes and absent names, which
#: the suite changes too, but under another name than that of the fact.
CHANGEABLE = frozenset(
    f"check_{name}" for name in ("literal_like", "number_type_and_value", "string_value", "len", "tensor")
)


#: changes of a program that a default run makes
MOST = 6


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_changed_fact_is_noticed(name, whole_run):
    build = PROGRAMS[name]
    names, wrong = [change.name for change in changes(build())], []
    indices = spread_over(len(names), MOST, name, whole=whole_run)
    for index in indices:
        wrong += [f"{names[index]}: {line}" for line in after_change(build, index, thunder)]
    assert not wrong, "\n".join([f"{name}: {len(wrong)} differences over {len(indices)} changes", *wrong])


@pytest.mark.parametrize("name", PROGRAMS)
def test_changes_that_pile_up_are_noticed(name, whole_run):
    wrong = []
    with refusals_as_recorded("changes that pile up", name) as refusals:
        for walk in range(6 if whole_run else 2):
            wrong += along_a_walk(PROGRAMS[name], 8, f"{name} {walk}", thunder, refusals)
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_unchanged_program_is_right(name):
    theirs, ours = PROGRAMS[name](), PROGRAMS[name]()
    compiled = thunder.jit(ours.program, recompile_limit=None)
    for _ in range(3):
        lines = compare(call(theirs.program, theirs), theirs, call(compiled, ours), ours)
        assert not lines, "\n".join(lines)


def steps_of(path: str) -> tuple[str, ...]:
    """The names and keys along a path: `self.a['k'][0]` → `("self", "a", "k", "0")`."""
    return tuple(re.findall(r"\w+", path))


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_suite_changes_every_fact_that_the_program_recorded(name):
    w = PROGRAMS[name]()
    compiled = thunder.jit(w.program)
    call(compiled, w)
    touched = {steps_of(change.slot)[-1:] for change in changes(w)}
    facts = thunder.compile_stats(compiled).interpreter_cache[-1].guards
    assert facts, "a compiled program recorded no fact"
    blind = [
        f"{fact.sym.name} {fact.path.source}"
        for fact in facts
        if fact.sym.name in CHANGEABLE and steps_of(fact.path.source)[-1:] not in touched
    ]
    assert not blind, "\n".join(blind)
