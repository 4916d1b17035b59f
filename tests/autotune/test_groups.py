"""Processes that tune together: all decide the same, by the slowest of each candidate."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu

import thunder
import thunder_distributed
from autotune.traps import FAST, Clock, executor_of
from sweeping import MARK
from thunder.plugins import get_manager
from thunder_autotune import Entry, Figure, autotune
from thunder_autotune.groups import slowest, slowest_figures
from thunder_autotune.lock_files import read
from thunder_autotune.lock_writing import write


def entry(figures: dict[str, float], refused: dict[str, str] | None = None) -> Entry:
    return Entry(
        kind="call",
        key="torch.sin(cpu f32[4])",
        executor="torch",
        default="torch",
        profile="cpu",
        figures={name: Figure(us) for name, us in figures.items()},
        refused=refused or {},
    )


def test_a_candidate_takes_the_time_of_the_slowest_process() -> None:
    found = slowest([entry({"torch": 60.0, "acme": 20.0}), entry({"torch": 50.0, "acme": 90.0})])
    assert found == entry({"torch": 60.0, "acme": 90.0})


def test_a_candidate_that_is_out_in_one_process_is_out() -> None:
    found = slowest([entry({"torch": 60.0, "acme": 20.0}), entry({"torch": 50.0}, {"acme": "wrong"})])
    assert found == entry({"torch": 60.0}, {"acme": "wrong (in process 1)"})


def test_what_one_process_has_not_measured_has_no_entry() -> None:
    assert slowest([entry({"torch": 60.0}), None]) is None
    assert slowest_figures([(Figure(1.0), Figure(2.0)), None]) is None
    assert slowest_figures([(Figure(1.0), Figure(2.0)), (Figure(3.0), Figure(1.0))]) == (
        Figure(3.0),
        Figure(2.0),
    )


# -- two processes of gloo

Case = Callable[[int, Path], Any]


def in_processes(case: Case, folder: Path) -> list[Any]:
    """Return what a case returns in each of two processes, or the text of its error."""
    forking = multiprocessing.get_context("fork")
    queue = forking.Queue()
    processes = [forking.Process(target=_process, args=(case, rank, folder, queue)) for rank in range(2)]
    for process in processes:
        process.start()
    found = dict(queue.get(timeout=120) for _ in processes)
    for process in processes:
        process.join(60)
    return [found[rank] for rank in range(2)]


def _process(case: Case, rank: int, folder: Path, queue: Any) -> None:
    store = f"file://{folder}/store"
    torch.distributed.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    try:
        queue.put((rank, case(rank, folder)))
    except Exception as error:
        queue.put((rank, f"{type(error).__name__}: {error}" if str(error) else traceback.format_exc()))
    torch.distributed.destroy_process_group()


def program(x: torch.Tensor) -> torch.Tensor:
    return gelu(x) * 2


def decided(rank: int, folder: Path, us: float, factor: float = 1.0, rows: int = 4) -> Any:
    """Return what a process decides about an executor whose kernel takes a time there, and may be wrong."""
    clock = Clock()
    ex = executor_of(lambda x, approximate: clock.gelu(x, approximate, us) * factor, "grouped")
    x = torch.rand(rows, 16)
    tuning = autotune(
        thunder.jit(program, executors=["torch", ex]), x, timer=clock, lock=folder / "thunder.lock.toml"
    )
    torch.testing.assert_close(tuning.compiled(x), program(x))
    torch.distributed.barrier()
    (found,) = tuning.entries
    return (
        found.executor,
        {n: round(f.us) for n, f in found.figures.items()},
        found.refused,
        len(read(folder / "thunder.lock.toml")),
    )


@pytest.mark.parametrize("step", [pytest.param(None, marks=MARK)])
class TestTwoProcesses:
    """Two processes, forked: `step` marks all of them as a sweep."""

    def test_both_use_what_is_fast_in_both(self, tmp_path: Path, step: None) -> None:
        both = in_processes(lambda rank, folder: decided(rank, folder, FAST + rank), tmp_path)
        assert both[0] == both[1]
        name, figures, refused, written = both[0]
        assert (name.startswith("grouped"), figures[name], refused, written) == (True, 21, {}, 1)

    def test_both_leave_what_is_slow_in_one(self, tmp_path: Path, step: None) -> None:
        both = in_processes(lambda rank, folder: decided(rank, folder, (FAST, 200.0)[rank]), tmp_path)
        assert both[0] == both[1]
        assert both[0][0] == "torch"

    def test_both_leave_what_is_wrong_in_one(self, tmp_path: Path, step: None) -> None:
        both = in_processes(lambda rank, folder: decided(rank, folder, FAST, (1.0, 1.01)[rank]), tmp_path)
        assert both[0] == both[1]
        (why,) = both[0][2].values()
        assert (both[0][0], why.endswith("(in process 1)")) == ("torch", True)

    def test_programs_that_differ_are_refused_by_name(self, tmp_path: Path, step: None) -> None:
        both = in_processes(lambda rank, folder: decided(rank, folder, FAST, rows=4 + rank), tmp_path)
        for text in both:
            assert "UserError: processes of the group have different calls and regions" in text

    def test_an_error_in_one_process_is_told_in_both(self, tmp_path: Path, step: None) -> None:
        def case(rank: int, folder: Path) -> Any:
            own = folder / str(rank)
            own.mkdir()
            if rank:
                (own / "thunder.lock.toml").write_text("format = 7")
            return decided(rank, own, FAST)

        first, second = in_processes(case, tmp_path)
        assert "UserError: process 1 of the group could not be tuned" in first
        for text in (first, second):
            assert "is not a lock file of thunder-autotune" in text

    def test_lock_files_that_differ_are_refused_by_name(self, tmp_path: Path, step: None) -> None:
        def case(rank: int, folder: Path) -> Any:
            own = folder / str(rank)
            own.mkdir()
            if rank:
                write(own / "thunder.lock.toml", [entry({"torch": 60.0})])
            return decided(rank, own, FAST)

        for text in in_processes(case, tmp_path):
            assert "UserError: processes of the group have different lock files" in text

    def test_a_data_parallel_training_is_tuned(self, tmp_path: Path, step: None) -> None:
        both = in_processes(trained, tmp_path)
        assert both[0] == both[1]
        executors, distance = both[0]
        assert executors == {"grouped"}
        assert distance < 1e-5


def trained(rank: int, folder: Path) -> Any:
    """Return who runs gelu in a tuned data-parallel model, and how far its gradients are from eager's."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    clock = Clock()
    ex = executor_of(lambda x, approximate: clock.gelu(x, approximate, FAST), "grouped")
    with get_manager().temporary(thunder_distributed, name="distributed-beside-autotune"):
        x = torch.rand(2, 6, 8)
        compiled = thunder.distributed.ddp(thunder.jit(model, executors=["torch", ex]))
        tuning = autotune(compiled, x[rank], timer=clock)
        tuning.compiled(x[rank]).square().sum().backward()
    gradients = [p.grad.clone() for p in tuning.compiled.parameters()]
    reference = torch.autograd.grad(
        sum(model(part).square().sum() for part in x) / 2, list(model.parameters())
    )
    names = {"grouped" if e.executor.startswith("grouped") else e.executor for e in tuning.entries}
    return names, max(float((g - r).abs().max()) for g, r in zip(gradients, reference, strict=True))
