"""What a page says of several processes: collectives, and what they overlap."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import thunder
import thunder_distributed
from thunder.plugins import get_manager
from thunder_report.collection import collect
from thunder_report.model import CollectiveCall, Measured, Report
from thunder_report.ranks import other_ranks, rank_of, write_rank


@pytest.fixture(scope="module")
def sharded() -> Iterator[Report]:
    """A report on a model whose parameters are divided over two processes; only one is there."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        with get_manager().temporary(thunder_distributed, name="distributed-beside-report"):
            model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
            compiled = thunder.distributed.fsdp(thunder.jit(model, executors=["torch"]))
            compiled(torch.randn(4, 8)).sum().backward()
            dist.destroy_process_group()
            yield collect(compiled)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def test_collectives_have_their_bytes_and_waits_also_without_their_group(sharded: Report) -> None:
    calls = sharded.programs[0].entries[0].collectives
    assert {(call.trace, call.name) for call in calls} == {
        ("forward", "all_gather"),
        ("backward", "reduce_scatter"),
    }
    assert sorted(call.nbytes for call in calls if call.trace == "forward") == [32, 64, 512, 512]
    assert all(call.waited > call.position for call in calls)


def test_without_a_measurement_the_order_is_shown(sharded: Report) -> None:
    [program] = rank_of(sharded, 1)["programs"]
    entry = sharded.programs[0].entries[0]
    lengths = [
        len(trace.stages[-1].statements) for trace in entry.traces if trace.name in ("forward", "backward")
    ]
    assert not program["measured"]
    assert (program["backward"], program["total"]) == (lengths[0], sum(lengths))
    assert sum(end - start for start, end, _ in program["compute"]) == program["total"]


def test_what_is_in_flight_and_what_is_waited_for(sharded: Report) -> None:
    """Two collectives overlap: 10 + 20 + 30 + 40, of which the last two wait."""
    program = sharded.programs[0]
    trace = replace(program.entries[0].traces[0], name="forward")
    stage = replace(trace.stages[-1], statements=(0, 0, 0, 0, 0))
    times = tuple(Measured(2, 2 * ns, ns) for ns in (10, 20, 30, 40, 50))
    entry = replace(
        program.entries[0],
        traces=(replace(trace, stages=(stage,)),),
        measured={"forward": times},
        collectives=(
            CollectiveCall("forward", 0, 2, "all_gather", "0", 64),
            CollectiveCall("forward", 1, 3, "all_gather", "0", 32),
        ),
    )
    report = replace(sharded, programs=(replace(program, entries=(entry,)),))
    [shown] = rank_of(report, 0)["programs"]
    assert [(event["start"], event["end"]) for event in shown["network"]] == [(0, 60), (10, 100)]
    assert (shown["in_flight"], shown["exposed"], shown["total"]) == (100, 70, 150)
    assert shown["compute"] == [[0, 30, False], [30, 100, True], [100, 150, False]]


def test_a_process_reads_what_others_of_its_run_wrote(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    rank: dict[str, Any] = {"rank": 1, "programs": []}
    write_rank(page, rank, "another run")
    assert list(other_ranks(page, 2, "this run", seconds=0)) == []
    write_rank(page, rank, "this run")
    assert list(other_ranks(page, 3, "this run", seconds=0)) == [rank]
    assert list(tmp_path.iterdir()) == []
