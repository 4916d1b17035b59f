"""Worlds that change between calls: a factory returns a program and the acts that change what it reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import thunder
from comparison.errors import is_a
from soundness.graph import Slot
from soundness.harness import World, call, compare_errors, ramp
from soundness.object_facts import differences, object_facts

#: a program of one tensor, and what changes the world around it, one act after another
Changing = Callable[[], tuple[Callable[[Any], Any], list[Callable[[], object]]]]

ROWS: dict[str, Changing] = {}


def changing(factory: Changing) -> Changing:
    """Adds a factory to the table."""
    ROWS[factory.__name__] = factory
    return factory


def wrong_calls(factory: Changing) -> list[str]:
    """What differs from eager in the calls of one world, two after each change; ``["refused"]`` if they are
    refused.
    """
    (theirs, their_acts), (ours, our_acts) = factory(), factory()
    compiled, wrong = thunder.jit(ours, recompile_limit=None), []
    for step in range(-1, len(our_acts)):
        if step >= 0:
            their_acts[step]()
            our_acts[step]()
        for _ in range(2):
            expected, found = (call(f, World(f, [ramp(3)])) for f in (theirs, compiled))
            if is_a(found.error, "UnsupportedProgram"):
                return ["refused"]
            if expected.error is not None or found.error is not None:
                lines = compare_errors(expected, found)
            else:
                lines = differences(
                    *(object_facts([Slot("result", o.value, print)]) for o in (expected, found))
                )
            wrong += [f"after change {step}: {line}" for line in lines]
    return wrong
