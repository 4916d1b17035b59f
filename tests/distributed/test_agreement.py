"""Processes agree on the programs that they begin, or have an error that says which."""

from __future__ import annotations

import re

import pytest

from distributed.killed_cases import LOST, OUTSIDE
from distributed.launching import Outcome

pytestmark = pytest.mark.multi_process


def both(outcomes: dict[str, list[Outcome]], name: str):
    return [outcome.get() for outcome in outcomes[name]]


def shows(text: str, *lines: str) -> bool:
    """Return whether a text is the error about two programs, and shows these lines of both."""
    return text.startswith("ProgramsDiffer: ranks ") and all(line in text for line in lines)


def test_programs_with_other_collectives_are_an_error_in_each_process(outcomes):
    for text in both(outcomes, "programs_that_differ"):
        assert text.startswith("ProgramsDiffer: ranks 0 and 1 have begun programs with other collectives")
        assert text.count("forward: all_gather f32[2, 4] (0) of t_") == 1 + 2


def test_other_code_in_one_process_is_an_error_in_each_that_shows_the_first_statement(outcomes):
    for first, meant, ragged in both(outcomes, "statements_that_differ"):
        assert first.startswith("ProgramsDiffer: ranks 0 and 1 have begun programs with other statements")
        assert "\n  rank 0:  t1 = relu(t0)\n  rank 1:  t1 = tanh(t0)\n" in first
        assert meant == ragged == "no error"


def test_other_weights_in_one_process_are_named_in_each(outcomes):
    value = r" requires grad 0x[0-9a-f]{16}\n"
    shown = rf"\n  rank 0:  layer.weight float32\[4, 4\]{value}  rank 1:  layer.weight float32\[4, 4\]{value}"
    for equal, replicated, sharded, shapes in both(outcomes, "weights_that_differ"):
        assert equal == "no error "
        assert re.match("WeightsDiffer: ranks 0 and 1 begin with other weights" + shown, replicated)
        assert re.match(
            "no error fsdp joins parts of other weights: ranks 0 and 1 begin with .*" + shown, sharded
        )
        assert "\n  rank 0:  layer.weight float32[4, 4] requires grad\n" in shapes
        assert "\n  rank 1:  layer.weight float32[5, 4] requires grad\n" in shapes


def test_branches_with_parameters_of_equal_shapes_are_told_apart(outcomes):
    for sharded, replicated in both(outcomes, "first_calls_of_other_branches"):
        assert shows(sharded, "rank 0:  forward: all_gather f32[2, 4] (0) of t_left_weight")
        assert shows(sharded, "rank 1:  forward: all_gather f32[2, 4] (0) of t_right_weight")
        assert shows(replicated, "backward: all_reduce f32[20] (sum) of t_left_bias, t_left_weight")
        assert shows(replicated, "backward: all_reduce f32[20] (sum) of t_right_bias, t_right_weight")


def test_a_program_that_one_process_compiles_later_is_compared(outcomes):
    for text in both(outcomes, "later_compiles_of_other_branches"):
        assert shows(text, "forward: all_gather f32[2, 4] (0) of t_left_weight", "of t_right_weight")


def test_programs_that_were_agreed_on_are_compared_when_they_come_in_another_order(outcomes):
    for results in both(outcomes, "warm_calls_of_other_branches"):
        for text, misses, misses_after in results:
            assert misses == misses_after == 2
            assert shows(text, "of t_left_", "of t_right_")


def test_a_program_that_one_process_leaves_by_an_error_is_not_continued_with_the_next(outcomes):
    for first, _ in both(outcomes, "an_error_in_one_process"):
        assert first.startswith(("ProgramsDiffer: ", "ProcessMissing: "))


def test_a_gradient_that_one_process_does_not_synchronise_is_an_error(outcomes):
    for text in both(outcomes, "unsynchronised_in_one_process"):
        assert shows(text, "backward: all_reduce f32[20] (sum) of t_left_bias", ":  none")


def test_a_process_that_begins_nothing_is_named(outcomes):
    text, _ = both(outcomes, "a_process_that_begins_nothing")
    assert text.startswith("ProcessMissing: rank 1 has not begun a program that this process has begun")


def test_a_program_without_collectives_runs_in_one_process_alone(outcomes):
    assert both(outcomes, "one_process_evaluates") == [True, True]


def test_programs_that_repeat_are_not_compared(outcomes):
    for writes in both(outcomes, "comparisons_of_a_loop"):
        assert sum(writes[:12]) > 0
        assert sum(writes[12:]) == 0


# -- processes that are killed, or hang ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "collective"),
    [
        ("killed_while_others_gather", "all_gather, number 1 of 15"),
        ("killed_while_others_reduce", "all_reduce, number 1 of 1"),
        ("hangs_while_others_gather", "all_gather, number 1 of 15"),
    ],
)
def test_a_process_that_is_lost_is_named(outcomes, name, collective):
    other, _ = outcomes[name]
    assert other.get().startswith(f"ProcessMissing: rank 1 did not take part in {collective} of this program")
    assert ("\n  ended: " in other.get()) is name.startswith("killed")  # and not after the timeout


@pytest.mark.parametrize("name", LOST)
def test_a_process_that_is_lost_in_a_collective_is_named(outcomes, name):
    other, _ = outcomes[name]
    where = name.partition(" in ")[2]
    pattern = rf"ProcessMissing: rank 1 did not take part in {where}, number \d+ of \d+ of this program"
    assert re.match(pattern, other.get()), other.get()
    assert ("\n  ended: " in other.get()) is name.startswith("killed")


def test_a_process_that_is_killed_before_it_compiles_is_named(outcomes):
    other, killed = outcomes["killed_before_it_compiles"]
    assert other.get().startswith("ProcessMissing: rank 1 has not begun to compile a module")
    assert killed.error == "killed"


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_process_that_is_lost_outside_of_programs_is_named(outcomes, name: str):
    other, killed = outcomes[name]
    assert other.get().startswith(f"ProcessMissing: rank 1 did not take part in {name}")
    assert "\n  ended: " in other.get()
    assert killed.error == "killed"
