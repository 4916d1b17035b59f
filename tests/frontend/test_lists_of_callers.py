"""Lists of the caller are as in eager whatever the program does with them, and are read by use alone."""

from __future__ import annotations

import copy
import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from frontend.lists_of_callers import Holder, made, program, shown, state

import thunder
from thunder.frontend.objects.shadow_copies import UNREAD

CALLS = 4


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return shown(call())
    except (IndexError, TypeError, ValueError) as error:  # of the program
        return repr(error)


def compared(text: str, draw: random.Random, *, becomes_one: bool) -> Any:
    """Call a program compiled and eager, compare results and lists, and return the compiled function."""
    ours = state(draw)
    theirs = copy.deepcopy(ours)
    eager, compiled = made(text, theirs[-1]), thunder.jit(made(text, ours[-1]))
    for call in range(CALLS):
        if becomes_one and call == CALLS - 1:
            ours[0].b, theirs[0].b = ours[0].a, theirs[0].a
        x = torch.full((2,), float(call))
        expected = outcome(lambda: (eager(x, *theirs[:-1]), theirs))  # noqa: B023
        assert outcome(lambda: (compiled(x, *ours[:-1]), ours)) == expected, text  # noqa: B023
    return compiled


@pytest.mark.parametrize("seed", range(24))
def test_programs_on_lists_are_as_in_eager(seed: int) -> None:
    draw = random.Random(seed)
    compared(program(draw, grows=False), draw, becomes_one=draw.random() < 0.3)


@pytest.mark.parametrize("seed", range(16))
def test_programs_that_read_no_item_are_compiled_at_most_three_times_while_lists_grow(seed: int) -> None:
    draw = random.Random(1000 + seed)
    compiled = compared(program(draw, grows=True), draw, becomes_one=False)
    assert thunder.cache_misses(compiled) <= 3  # the first, with lengths as inputs, the other answer
