"""Random programs that ask for data, in sequences of calls whose answers differ, against eager."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import thunder
from comparison.call_sequences import assert_same, copy_of, outcome_of
from soundness.deciding_programs import arguments, program
from sweeping import one_in
from thunder.base.errors import DecisionChanged
from thunder.compiler.failed_calls import RunningCall, undo
from thunder.wrappers.thunder_module import dispatcher_of

CALLS = 5


def outcome_or_skip(fn: Any, args: Any, seed: int) -> Any:
    """Return eager's outcome; skip a program whose own backward eager cannot run."""
    try:
        return outcome_of(fn, args, seed)
    except RuntimeError:
        pytest.skip("the program writes to what its backward needs")


@pytest.mark.parametrize("seed", one_in(40, range(200)))
def test_a_random_program_is_as_in_eager_in_every_call(seed: int) -> None:
    fn = program(seed)
    compiled = thunder.jit(fn)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call in range(CALLS):
            args = arguments(seed, call)
            eager = outcome_or_skip(fn, copy_of(args), call)
            assert_same(outcome_of(compiled, copy_of(args), call), eager, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("seed", one_in(25, range(100)))
def test_each_flipped_decision_is_noticed_and_leaves_nothing_written(seed: int) -> None:
    """An entry that is compiled for another answer than the call has leaves at that decision."""
    compiled = thunder.jit(program(seed))
    torch.manual_seed(5)
    entry = None
    try:
        compiled(*arguments(seed, 1))
        entry = thunder.compile_stats(compiled).last_entry
    except ValueError:
        pass
    for index, decision in enumerate(entry.decisions if entry is not None else ()):
        if type(decision.answer) is not bool:
            continue
        args = arguments(seed, 1)
        torch.manual_seed(5)
        try:
            flipped = dispatcher_of(compiled)._compiler.compile(
                args, {}, answers=(*entry.answers[:index], not decision.answer)
            )
        except Exception:
            continue  # the program raises for the other answer
        before = copy_of(args)
        torch.manual_seed(5)
        inputs = flipped.prologue_fn(*args)[0]
        running = RunningCall(flipped.failures, inputs)
        with pytest.raises(DecisionChanged, match=rf"^\({index}, {decision.answer}\)$"):
            flipped.computation_fn(*inputs)
        undo(flipped.failures, running)
        torch.testing.assert_close(args[:3], before[:3], rtol=0, atol=0)
        assert args[3:] == before[3:]
