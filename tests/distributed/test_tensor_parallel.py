"""Two gloo processes with parts of the parameters compute what one process computes."""

from __future__ import annotations

import pytest
import torch.distributed.checkpoint as torch_checkpoint

from distributed.launching import Outcome
from distributed.small_models import words
from distributed.tensor_cases import RANDOM_PROGRAMS, TRAINED
from distributed.trainings import distance

pytestmark = pytest.mark.multi_process
TOLERANCE = 1e-10


def both(outcomes: dict[str, list[Outcome]], name: str):
    return [outcome.get() for outcome in outcomes[name]]


@pytest.mark.parametrize("name", TRAINED)
def test_twenty_steps_equal_those_of_one_process(outcomes, name: str):
    for result in both(outcomes, name):
        assert max(result["losses"], result["gradients"], result["norms"], result["state"]) < TOLERANCE
        assert result["compiles"] == 1
        assert result["attributes"]


def test_the_sequence_is_scattered_in_place_of_being_reduced(outcomes):
    result = both(outcomes, "sequence parallel")[0]
    # the table, and two sums of each of two layers
    assert result["collectives"].count("reduce_scatter") >= 1 + 2 * 2
    assert result["sums"] == {(8,)}  # of norms and biases, read for parts


def test_processes_that_would_draw_other_numbers_are_refused(outcomes):
    results = both(outcomes, "draws_that_differ")
    for error, _, first in results:
        assert error.startswith("DrawsDiffer: the processes that compute parts of the same result are about")
        assert first == "all_gather i64[1]"
    assert results[0][1] == results[1][1]


@pytest.mark.parametrize("name", RANDOM_PROGRAMS)
def test_random_programs_on_parts_compute_what_eager_computes(outcomes, name: str):
    for wrong, used in both(outcomes, name):
        assert wrong == ""
        assert used == ["all_gather", "all_reduce", "reduce_scatter"]


def test_state_dicts_are_divided_and_gathered(outcomes):
    for loaded, shapes, difference, loss in both(outcomes, "states_of_parts"):
        assert loaded == "<All keys matched successfully>"
        assert shapes["blocks.0.up.weight"] == (6, 5)  # of 11 rows
        assert shapes["blocks.0.down.weight"] == (5, 6)  # of 11 columns
        assert shapes["embedding.weight"] == shapes["head.weight"] == (4, 5)  # of 7 rows
        assert shapes["blocks.0.down.bias"] == (5,)
        assert difference == 0
        assert loss < TOLERANCE


def test_files_are_loaded_by_the_model_itself(outcomes):
    for folder, difference in both(outcomes, "files_of_divided_parameters"):
        assert difference == 0
        state = words().state_dict()
        torch_checkpoint.load(state, checkpoint_id=folder, no_dist=True)
        assert distance(state, words(seed=5).state_dict()) == 0


def test_all_processes_begin_with_the_values_of_one(outcomes):
    assert both(outcomes, "processes_begin_equally") == [0.0, 0.0]


def test_adapters_are_trained_beside_weights_in_parts(outcomes):
    for losses, state, adapters in both(outcomes, "adapters_beside_parts"):
        assert max(losses, state) < TOLERANCE
        assert len(adapters) == 2 * 4 * 2


def test_quantised_parts_are_parts_of_quantised_weights(outcomes):
    for difference, shape in both(outcomes, "quantised_parts"):
        assert difference < 1e-6
        assert shape == (32 * 64 // 2, 1)


def test_autocast_lowers_the_layers_in_parts(outcomes):
    for loss, gradients, dtypes in both(outcomes, "lowered_precision"):
        assert max(loss, gradients) < 2**-6  # bfloat16 has 8 bits
        assert dtypes == ["bf16"]


def test_heads_that_are_shared_are_divided_with_their_masks(outcomes):
    for difference, gathers in both(outcomes, "shared_heads"):
        assert difference < TOLERANCE
        assert gathers == [0, 0, 1, 1]  # the gradient of a mask of which each process reads a part


def test_sizes_may_vary(outcomes):
    for difference, _ in both(outcomes, "sizes_that_vary"):
        assert difference < TOLERANCE


def test_gradients_that_the_program_defines_are_those_of_whole_values(outcomes):
    assert max(both(outcomes, "gradients_of_the_program")) < TOLERANCE
