"""Of the processes of a group one compiles a program, and later processes compile none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
import thunder_store
from distributed.agreement_cases import Activated
from distributed.conftest import pretended
from distributed.kept_cases import KEPT, as_in_a_new_process
from distributed.launching import Outcome
from distributed.test_two_processes import TOLERANCE, both
from distributed.trainings import distance
from thunder.distributed import FSDPBucketingStrategy, FSDPType, column_parallel, ddp, fsdp, row_parallel
from thunder.plugins import get_manager
from thunder_distributed import running
from thunder_distributed.replication import DDPTransform
from thunder_store import program_cache


@pytest.fixture
def _store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Register thunder-store, as an installed package is; modules are loaded that other tests wrote."""
    monkeypatch.setattr(program_cache, "refuse_newer_files", lambda files: None)
    with get_manager().temporary(thunder_store, name="store-under-test"):
        yield


@pytest.mark.multi_process
@pytest.mark.parametrize("name", KEPT)
def test_one_process_compiles_and_the_next_ones_none(outcomes: dict[str, list[Outcome]], name: str):
    first, second = zip(*both(outcomes, name), strict=True)
    assert sorted(result["events"] for result in first) == [["hit"], ["kept"]]
    assert [result["events"] for result in second] == [["hit"], ["hit"]]
    for result in (*first, *second):
        assert max(result["losses"], result["gradients"], result["state"]) < TOLERANCE


@pytest.mark.multi_process
def test_calls_without_communication_are_programs_of_their_own(outcomes: dict[str, list[Outcome]]):
    first, second = zip(*both(outcomes, "kept_without_synchronisation"), strict=True)
    kinds = sorted(kind for run in first for kind in run["events"] if kind != "not used")
    assert kinds == ["hit", "hit", "kept", "kept"]
    for run in second:
        assert [kind for kind in run["events"] if kind != "not used"] == ["hit", "hit"]
    for run in (*first, *second):
        local, communicated = run["sent"]
        assert local == []
        assert set(communicated) == {"all_reduce"}
        assert distance(run["gradients"], first[0]["gradients"]) < TOLERANCE


@pytest.mark.multi_process
def test_traces_of_another_state_are_refused(outcomes: dict[str, list[Outcome]]):
    for text in both(outcomes, "traces_in_another_state"):
        assert "whose state is another one now" in text


def whole_call(**options: Any) -> Any:
    """Return the traces that run in a call with a backward, as text."""
    compiled = thunder.jit(Activated(torch.tanh), transforms=[fsdp()], **options)
    compiled(torch.ones(2, 4)).backward()
    last = (traces(compiled)[-1] for traces in (thunder.last_traces, thunder.last_backward_traces))
    return [str(trace).partition("\n")[2] for trace in last]  # the first line has the time of the stage


def known_of(texts: list[str]) -> list[Any]:
    """Return what is known of the programs that statements of traces agree on."""
    digests = [re.search(r"agree\('\w+', '(\w+)', '(\w+)'\)", text) for text in texts]
    return [(running.known_sequence(d[1]), running.known_program(d[2])) for d in digests if d is not None]


@pytest.mark.usefixtures("fake_group", "_store")
def test_a_program_that_was_found_has_the_traces_of_its_compile_and_is_known(tmp_path: Path):
    compiled = whole_call(program_cache=str(tmp_path))
    known = known_of(compiled)
    with as_in_a_new_process():
        found = whole_call(program_cache=str(tmp_path))
        assert thunder_store.events()[-1].kind == "hit"
        assert found == compiled
        assert known_of(found) == known
    assert [len(sequence) for sequence, _ in known] == [2, 2]
    assert all(statements for _, (_, statements) in known)


class Replicating(DDPTransform):
    """A transform that does more than its class says."""


@pytest.mark.usefixtures("fake_group", "_store")
def test_a_subclass_says_itself_what_its_programs_depend_on(tmp_path: Path):
    thunder.jit(Activated(torch.tanh), transforms=[Replicating()], program_cache=str(tmp_path))(
        torch.ones(2, 4)
    )
    assert thunder_store.events()[-1][::2] == ("not kept", "transforms: Replicating has no identity")


#: settings of which each gives another program
SETTINGS: dict[str, Any] = {
    "none": list,
    "ddp": lambda: [ddp()],
    "buckets": lambda: [ddp(bucket_size_in_mb=0)],
    "fsdp": lambda: [fsdp()],
    "zero3": lambda: [fsdp(sharding_strategy=FSDPType.ZERO3)],
    "layers": lambda: [fsdp(bucketing_strategy=FSDPBucketingStrategy.LAYER)],
    "columns": lambda: [column_parallel(target_modules=["layer"])],
    "rows": lambda: [row_parallel(target_modules=["layer"])],
    "sequences": lambda: [row_parallel(target_modules=["layer"], sequence_dim=-2)],
}


@pytest.mark.usefixtures("fake_group", "_store")
def test_other_settings_are_other_programs(tmp_path: Path):
    kinds = []
    for make in (*SETTINGS.values(), *SETTINGS.values()):
        compiled = thunder.jit(Activated(torch.tanh), transforms=make(), program_cache=str(tmp_path))
        compiled(torch.ones(2, 4))
        kinds.append(thunder_store.events()[-1].kind)
    assert kinds == ["kept"] * len(SETTINGS) + ["hit"] * len(SETTINGS)


@pytest.mark.usefixtures("_store")
def test_a_group_of_another_size_is_another_program(tmp_path: Path):
    for size in (2, 4):
        with pretended(size):
            whole_call(program_cache=str(tmp_path))
        assert thunder_store.events()[-1].kind == "kept"
