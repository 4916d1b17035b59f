"""Two gloo processes compute what one process computes on the joined batch."""

from __future__ import annotations

import pytest
import torch

from distributed.launching import Outcome
from distributed.training_cases import ACCUMULATED, CLIPPED, TRAINED

pytestmark = pytest.mark.multi_process
TOLERANCE = 1e-10


def both(outcomes: dict[str, list[Outcome]], name: str):
    return [outcome.get() for outcome in outcomes[name]]


@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_equal_those_of_one_process_on_the_joined_batch(outcomes, name: str):
    for result in both(outcomes, name):
        assert max(result["losses"], result["gradients"], result["state"]) < TOLERANCE
        assert result["compiles"] == 1
        assert result["attributes"]


def test_gathers_that_are_scheduled_change_no_number(outcomes):
    for result in both(outcomes, "scheduled_fsdp"):
        assert max(result["losses"], result["gradients"], result["state"]) < TOLERANCE


@pytest.mark.parametrize("name", CLIPPED)
def test_gradients_are_clipped_by_the_norm_of_the_whole_model(outcomes, name: str):
    for result in both(outcomes, name):
        assert max(result["norms"], result["state"]) < TOLERANCE


@pytest.mark.parametrize("name", ACCUMULATED)
def test_gradients_are_accumulated_without_communication(outcomes, name: str):
    for result in both(outcomes, name):
        assert max(result["losses"], result["gradients"], result["state"]) < TOLERANCE
        assert not {"reduce_scatter", "all_reduce"} & set(result["local"])
        assert {"reduce_scatter", "all_reduce"} & set(result["collectives"])


def test_all_processes_begin_with_the_values_of_one(outcomes):
    assert both(outcomes, "processes_begin_with_the_values_of_one") == [[0.0, 0.0], [0.0, 0.0]]


def test_collectives_compute_what_their_names_say(outcomes):
    (x, first), (y, second) = both(outcomes, "results_of_collectives")
    total = x + y
    expected = [
        (torch.cat([x, y]), torch.cat([x, y])),
        (torch.cat([x, y], 1), torch.cat([x, y], 1)),
        (total, total),
        (y, y),
        (total[:2], total[2:]),
        (total[:, :1] / 2, total[:, 1:] / 2),
        (y, y),
        (torch.cat([x[:2], y[:2]]), torch.cat([x[2:], y[2:]])),
    ]
    for index, (left, right) in enumerate(expected):
        torch.testing.assert_close(first[index], left)
        torch.testing.assert_close(second[index], right)


def test_a_future_is_waited_for(outcomes):
    for (gathered, summed), text in both(outcomes, "futures"):
        assert gathered.tolist() == [1, 1, 2, 2]
        assert summed.tolist() == [6, 6]
        assert "ft0 = all_gather(x, '0', 0, True)  # ft0: \"FUTURE cpu f32[4]\"" in text
        assert "wait(ft0)" in text


def test_a_collective_of_gloo_begins_when_the_one_before_has_arrived(outcomes):
    for counts, in_flight, results in both(outcomes, "collectives_of_gloo_in_flight"):
        assert counts == [0, 0, 0, 0]
        assert in_flight == 1
        torch.testing.assert_close(results, torch.arange(4.0)[:, None].expand(4, 2))


def test_gradients_of_collectives_are_those_of_the_sum_of_all_losses(outcomes):
    assert max(both(outcomes, "gradients_of_collectives")) < 1e-6
