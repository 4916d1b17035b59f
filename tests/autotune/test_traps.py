"""Kernels that a tuner must not use, each with the reason that it gives."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu

import thunder
from autotune.traps import FAST, GELU, TORCH, Clock, Regions, calls_by, executor_of, kernels
from thunder.extend import OperatorExecutor
from thunder_autotune import Entry, Tuning, autotune
from thunder_autotune.entries import CALLS


def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return gelu(x).sum() + gelu(y).sum()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    """Return inputs without negative numbers, of two shapes."""
    return torch.rand(4, 16), torch.rand(4, 32)


def only(entries: list[Entry], shape: str) -> Entry:
    (entry,) = [entry for entry in entries if shape in entry.key]
    return entry


def test_a_faster_right_kernel_takes_the_place_of_torch(clock: Clock) -> None:
    ex = executor_of(lambda x, approximate: clock.gelu(x, approximate, FAST))
    x, y = inputs()
    tuning = autotune(thunder.jit(program, executors=["torch", ex]), x, y, timer=clock)
    tuning.compiled(x, y)
    assert calls_by(tuning.compiled, ex.name) == 2
    assert tuning.default is not None
    assert tuning.tuned is not None
    assert (round(tuning.default.us), round(tuning.tuned.us)) == (2 * TORCH, 2 * FAST)
    assert torch.equal(tuning.compiled(x, y), program(x, y))


def test_a_slower_kernel_that_is_first_gives_way_to_torch(clock: Clock) -> None:
    ex = executor_of(lambda x, approximate: clock.gelu(x, approximate, 90.0))
    x, y = inputs()
    compiled = thunder.jit(program, executors=[ex])
    compiled(x, y)
    assert calls_by(compiled, ex.name) == 2
    tuned = autotune(compiled, x, y, timer=clock).compiled
    tuned(x, y)
    assert calls_by(tuned, "torch") == 2


@pytest.fixture(scope="module")
def trapped() -> tuple[dict[str, OperatorExecutor], Tuning, Sequence[Any]]:
    """Return the executor of each trap, a tuning with all of them, and the ledger of the tuned program."""
    clock = Clock()
    traps = {name: executor_of(kernel) for name, (kernel, _) in kernels(clock).items()}
    x, y = inputs()
    tuning = autotune(thunder.jit(program, executors=["torch", *traps.values()]), x, y, timer=clock)
    tuning.compiled(x, y)
    return traps, tuning, thunder.explain(tuning.compiled).rows


@pytest.mark.parametrize("trap", kernels(Clock()))
def test_a_trap_is_out_and_the_reason_names_it(
    trapped: tuple[dict[str, OperatorExecutor], Tuning, Sequence[Any]], trap: str
) -> None:
    traps, tuning, rows = trapped
    ex, (_, words) = traps[trap], kernels(Clock())[trap]
    entry = only(list(tuning.entries), "[4, 16]")
    assert ex.name not in entry.figures
    assert words in entry.refused[ex.name]
    assert entry.executor == "torch"
    (row,) = [r for r in rows if r.symbol == GELU and r.outputs == ("t0",)]
    (reason,) = [r for r in row.refusals if r.executor == ex.name]
    assert words in reason.message


def test_a_kernel_that_is_wrong_for_one_shape_runs_the_other(clock: Clock) -> None:
    ex = executor_of(kernels(clock)["wrong for one shape"][0])
    x, y = inputs()
    tuning = autotune(thunder.jit(program, executors=["torch", ex]), x, y, timer=clock)
    chosen = {entry.key.partition("[")[2]: entry.executor for entry in tuning.entries}
    assert chosen == {"4, 16], approximate='none')": "torch", "4, 32], approximate='none')": ex.name}


def test_a_kernel_that_is_slow_in_company_is_not_used(clock: Clock) -> None:
    """The first in a run takes 20 µs, each further one 200: alone, it is faster than torch."""
    ex = executor_of(lambda x, approximate: clock.gelu(x, approximate, FAST if clock.kernels == 0 else 200.0))
    x, y = inputs()
    tuning = autotune(thunder.jit(program, executors=["torch", ex]), x, y, timer=clock)
    assert all(entry.fastest == ex.name for entry in tuning.entries)
    tuning.compiled(x, y)
    assert (calls_by(tuning.compiled, ex.name), calls_by(tuning.compiled, "torch")) == (1, 1)
    left = next(entry for entry in tuning.entries if entry.executor == "torch")
    assert left.reason == "it is faster alone, and the program is not faster with it"


def test_a_kernel_that_is_slow_later_is_not_used(clock: Clock) -> None:
    runs = itertools.count()
    ex = executor_of(lambda x, approximate: clock.gelu(x, approximate, FAST if next(runs) < 70 else 200.0))
    x, y = inputs()
    tuning = autotune(thunder.jit(program, executors=["torch", ex]), x, y, timer=clock)
    assert {entry.fastest for entry in tuning.entries} == {ex.name}
    assert {entry.executor for entry in tuning.entries} == {"torch"}
    tuning.compiled(x, y)
    assert calls_by(tuning.compiled, "torch") == 2


def test_a_kernel_must_win_by_more_than_the_spread(clock: Clock) -> None:
    times = itertools.cycle((40.0, 70.0))
    ex = executor_of(lambda x, approximate: clock.gelu(x, approximate, next(times)))
    x, y = inputs()
    tuning = autotune(thunder.jit(program, executors=["torch", ex]), x, y, timer=clock)
    assert all(entry.figures[ex.name].us < TORCH for entry in tuning.entries)
    assert {entry.executor for entry in tuning.entries} == {"torch"}
    assert "by more than the spread" in tuning.why


def dropped(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.dropout(x, 0.5)


@pytest.mark.parametrize("equal", [True, False], ids=["equal numbers", "other numbers"])
def test_random_calls_keep_their_numbers(clock: Clock, equal: bool) -> None:
    ex = thunder.extend.OperatorExecutor(f"dropping_{equal}")

    def fn(a: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> torch.Tensor:
        clock.tick(FAST)
        if not equal:
            torch.rand(3)
        return torch.nn.functional.dropout(a, p, training)

    operator = ex.register_operator(
        "dropout", like=thunder.torch.dropout, fn=fn, tags=(thunder.core.tags.OpTags.RANDOM_OP,)
    )
    ex.register_implementation("torch.nn.functional.dropout", operator)
    x = torch.rand(4, 16)
    tuning = autotune(thunder.jit(dropped, executors=["torch", ex]), x, timer=clock)
    (entry,) = tuning.entries
    if equal:
        assert (ex.name in entry.figures, entry.refused) == (True, {})
    else:
        assert entry.refused == {ex.name: "it draws other numbers than torch"}


def sines(x: torch.Tensor) -> torch.Tensor:
    return gelu(torch.sin(x))


@pytest.mark.parametrize(("us", "chosen"), [(20.0, "regions"), (90.0, CALLS)])
def test_a_region_is_compiled_or_left_as_a_whole(clock: Clock, us: float, chosen: str) -> None:
    ex = Regions(clock, us)
    x = torch.rand(4, 16)
    compiled = thunder.jit(sines, executors=[ex])
    tuning = autotune(compiled, x, timer=clock)
    (entry,) = tuning.entries
    assert (entry.kind, entry.calls) == ("region", "sin, gelu")
    assert entry.executor.startswith(chosen)
    assert torch.equal(tuning.compiled(x), sines(x))
    row = thunder.explain(tuning.compiled).rows[0]
    assert row.claimed_by == (ex.name if chosen == "regions" else "torch")
    if chosen == CALLS:
        (reason,) = [r for r in row.refusals if r.executor == ex.name]
        assert reason.message == "measured 90 µs, call by call 60 µs"


def test_another_compiler_of_regions_takes_a_region(clock: Clock, tmp_path: Path) -> None:
    slow, quick = Regions(clock, 50.0), Regions(clock, 20.0)
    x, lock = torch.rand(4, 16), tmp_path / "thunder.lock.toml"

    def twice(x: torch.Tensor) -> torch.Tensor:
        return sines(x) @ sines(x).T

    compiled = thunder.jit(twice, executors=[slow, quick])
    tuning = autotune(compiled, x, timer=clock, lock=lock)
    region = next(entry for entry in tuning.entries if entry.kind == "region")
    assert (region.default, region.executor) == (slow.name, quick.name)
    assert {entry.executor for entry in tuning.entries} == {quick.name}
    for form in (tuning.compiled, thunder.jit(twice, executors=[slow, quick], placement=str(lock))):
        assert torch.equal(form(x), twice(x))
        owners = {row.symbol: row.claimed_by for row in thunder.explain(form).rows}
        assert owners == {
            "torch.sin": quick.name,
            GELU: quick.name,
            "torch.permute": "torch",
            "torch.matmul": "torch",
        }


def test_a_region_that_is_wrong_is_left(clock: Clock) -> None:
    ex = Regions(clock, FAST, factor=1.01)
    x = torch.rand(4, 16)
    tuning = autotune(thunder.jit(sines, executors=[ex]), x, timer=clock)
    (entry,) = tuning.entries
    assert entry.executor == CALLS
    assert torch.equal(tuning.compiled(x), sines(x))
