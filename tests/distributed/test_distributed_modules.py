"""Compiled modules in two processes: agreement, groups, state dicts and their files."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint as torch_checkpoint

from distributed.launching import EXAMPLE, README, TINY, Outcome
from distributed.module_cases import QUANTISED
from distributed.small_models import words
from distributed.trainings import distance

pytestmark = pytest.mark.multi_process


def both(outcomes: dict[str, list[Outcome]], name: str):
    return [outcome.get() for outcome in outcomes[name]]


def test_a_process_may_compile_alone_for_another_size(outcomes):
    (misses, difference), (misses_of_other, _) = both(outcomes, "batches_of_other_sizes")
    assert (misses, misses_of_other) == (1, 2)
    assert difference < 1e-10


def test_parameters_are_sharded_over_one_dimension_of_a_mesh_and_replicated_over_the_other(outcomes):
    for sharded, replicated in both(outcomes, "hybrid_meshes"):
        assert max(sharded[0], replicated[0]) < 1e-10
        assert sharded[1] == replicated[1] == ["all_gather", "all_reduce", "reduce_scatter"]


def test_state_dicts_of_both_forms_round_trip(outcomes):
    for loaded, parts, difference, _, tied, has_fsdp in both(outcomes, "state_dicts"):
        assert loaded == "<All keys matched successfully>"
        assert parts["blocks.0.up.weight"] == (6, 5)  # of 11 rows
        assert parts["scale"] == (1,)
        assert parts["offset"] == (5,)
        assert difference == 0
        assert tied
        assert has_fsdp
    assert [result[3] for result in both(outcomes, "state_dicts")] == [len(words().state_dict()), 0]


def test_files_of_parts_are_loaded_by_other_numbers_of_processes(outcomes):
    for folder, difference in both(outcomes, "files_of_parts"):
        assert difference == 0
        model = words()
        state = model.state_dict()
        for name in ("scale",):  # a scalar is one row in the files
            state[name] = state[name].reshape(1)
        torch_checkpoint.load(state, checkpoint_id=folder, no_dist=True)
        state["scale"] = state["scale"].reshape(())
        assert distance(state, words(seed=5).state_dict()) == 0


def test_a_program_that_raises_does_not_run_with_the_original_parameters(outcomes):
    for error, after in both(outcomes, "a_program_that_raises"):
        assert "IndexError" in error
        torch.testing.assert_close(torch.tensor(after), torch.full((1, 3), 8.0))


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_weights_and_adapters_are_sharded(outcomes, name: str):
    for difference, shapes in both(outcomes, name):
        assert difference < 1e-6
        assert shapes["0.weight"] == (48, 1)  # of 16 * 12 / 2 bytes
        assert shapes.get("0.weight.lora_b") == ((6, 2) if "adapters" in name else None)


def test_parameters_on_the_meta_device_get_their_parts_of_a_state_dict(outcomes):
    assert both(outcomes, "from_the_meta_device") == [0, 0]


def test_the_readmes_program_prints_what_the_readme_shows(outcomes):
    shown = README.read_text(encoding="utf-8").split("```text\n")[1].split("```")[0]
    assert both(outcomes, "readme") == [shown, ""]


def test_the_example_trains_as_one_process_and_communicates_what_torch_does(outcomes):
    assert_table(both(outcomes, "example")[0], ["zero2", "1f1b"])


@pytest.mark.sweep
def test_the_example_trains_in_every_strategy():
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", str(EXAMPLE), *TINY]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert_table(run.stdout, ["ddp", "zero2", "zero3", "tensor", "context", "gpipe", "1f1b"])


def assert_table(printed: str, strategies: list[str]) -> None:
    """Check the example's table: torch's row of a strategy, if there is one, has as many bytes or more."""
    assert "losses of 3 steps equal those of one process" in printed
    rows = re.findall(r"^(\w+) +(thunder|torch) .*?([\d.]+) MiB +(\d+) +([\d.e+-]+)$", printed, re.M)
    by_torch = {name: float(sent) for name, who, sent, *_ in rows if who == "torch"}
    assert [name for name, who, *_ in rows if who == "thunder"] == strategies
    for name, _, sent, calls, difference in rows:
        assert 0 < float(sent) <= by_torch.get(name, float(sent))
        assert int(calls) > 0
        assert float(difference) < 1e-4
