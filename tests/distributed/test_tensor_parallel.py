"""Two gloo processes with parts of the parameters compute what one process computes."""

from __future__ import annotations

import pytest

from distributed.launching import Outcome

pytestmark = pytest.mark.multi_process
TOLERANCE = 1e-10
TRAINED = ("tensor_parallel", "sequence_parallel", "uneven_tensor_parallel", "dropped_tensor_parallel")


def both(outcomes: dict[str, list[Outcome]], name: str):
    return [outcome.get() for outcome in outcomes[name]]


@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_equal_those_of_one_process(outcomes, name: str):
    for result in both(outcomes, name):
        assert max(result["losses"], result["gradients"], result["norms"], result["state"]) < TOLERANCE
        assert result["compiles"] == 1
        assert result["attributes"]


def test_the_sequence_is_scattered_in_place_of_being_reduced(outcomes):
    result = both(outcomes, "sequence_parallel")[0]
    # the table, and two sums of each of two layers
    assert result["collectives"].count("reduce_scatter") >= 1 + 2 * 2
    assert result["sums"] == {(8,)}  # of norms and biases, read for parts


def test_processes_that_would_draw_other_numbers_are_refused(outcomes):
    results = both(outcomes, "draws_that_differ")
    for error, _, first in results:
        assert error.startswith("DrawsDiffer: the processes that compute parts of the same result are about")
        assert first == "all_gather i64[1]"
    assert results[0][1] == results[1][1]
