"""Four gloo processes compute what one process computes on the joined batch."""

from __future__ import annotations

import pytest
import torch.distributed.checkpoint as torch_checkpoint

from distributed.attention_models import reader
from distributed.mesh_cases import NAMES
from distributed.tensor_mesh_cases import ACCUMULATED as TENSORS_ACCUMULATED
from distributed.tensor_mesh_cases import NAMES as TENSOR_NAMES
from distributed.training_cases import ACCUMULATED, CLIPPED
from distributed.trainings import distance

pytestmark = [pytest.mark.multi_process, pytest.mark.sweep]


#: the modules whose cases four processes run
FOUR_PROCESSES = (
    "training_cases",
    "mesh_cases",
    "killed_cases",
    "tensor_mesh_cases",
    "checkpoint_cases",
)


@pytest.mark.parametrize(
    "name", [*NAMES, *TENSOR_NAMES, "mesh accumulated", *ACCUMULATED, *CLIPPED, *TENSORS_ACCUMULATED]
)
def test_twenty_steps_of_four_processes_equal_those_of_one(four, name: str):
    for outcome in four[name]:
        result = outcome.get()
        assert max(result["losses"], result["gradients"], result["norms"], result["state"]) < 1e-10


def test_sequences_and_layers_are_divided_over_two_dimensions(four):
    for outcome in four["contexts_and_tensors"]:
        ring, gathered = outcome.get()
        assert max(max(r["losses"], r["gradients"], r["norms"], r["state"]) for r in (ring, gathered)) < 1e-10
        assert "rotate" in ring["collectives"]
        assert "rotate" not in gathered["collectives"]


@pytest.mark.parametrize(
    "kind", ["killed_while_others_gather", "killed_while_others_reduce", "hangs_while_others_gather"]
)
def test_each_of_the_others_names_the_process_that_is_lost(four, kind: str):
    for outcome in four[kind][:-1]:
        assert outcome.get().startswith("ProcessMissing: rank 3 did not take part in all_")


@pytest.mark.parametrize("name", ["loaded_by_fewer_processes", "saved_while_training"])
def test_files_of_four_processes_are_loaded_by_two_and_by_one(four, name: str):
    assert max(outcome.get() for outcome in four[name]) < 1e-10


def test_files_of_two_dimensions_are_loaded_by_other_layouts(four):
    for outcome in four["files_of_two_dimensions"]:
        folder, differences, refused = outcome.get()
        assert differences == [0, 0, 0]
        assert refused.startswith("UnsupportedProgram: the rows of head.weight are divided unevenly")
        state = reader().state_dict()
        torch_checkpoint.load(state, checkpoint_id=folder, no_dist=True)
        assert distance(state, reader(seed=5).state_dict()) == 0


def test_many_random_programs_compute_what_eager_computes(four):
    for outcome in four["many_random_programs"]:
        assert outcome.get() == ""


def test_a_published_model_needs_one_sum_for_each_pair_of_layers(four):
    for outcome in four["a_published_model"]:
        difference, sums = outcome.get()
        assert difference < 1e-10
        assert sums == 1 + 2 * 2  # the table, and attention and perceptron of two layers
