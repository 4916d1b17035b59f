"""Symbolic sizes: what is measured for a range of sizes holds in it, and its borders are guards."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu

import thunder
from autotune.traps import FAST, GELU, TORCH, Clock, Regions, calls_by, executor_of
from thunder.extend import OperatorExecutor
from thunder_autotune import autotune
from thunder_autotune.buckets import borders_in
from thunder_autotune.entries import CALLS
from thunder_autotune.lock_files import read


def layers(x: torch.Tensor) -> torch.Tensor:
    return gelu(gelu(x)) @ torch.ones(x.shape[1], 4)


def for_short(clock: Clock) -> OperatorExecutor:
    """Return an executor that is fast for few rows, and slow for many."""
    return executor_of(lambda x, approximate: clock.gelu(x, approximate, FAST if len(x) <= 32 else 200.0))


def symbolic(program: Callable[..., Any], executors: list[Any], **options: Any) -> Any:
    return thunder.jit(program, executors=executors, cache="symbolic values", **options)


def chosen(tuning: Any) -> dict[str, str]:
    return {entry.key: entry.executor for entry in tuning.entries}


def test_keys_have_symbols_and_their_ranges(clock: Clock) -> None:
    ex = for_short(clock)
    tuning = autotune(symbolic(layers, ["torch", ex]), torch.rand(20, 40), timer=clock)
    key = f"{GELU}(cpu f32[n0, n1], approximate='none') with n0 in 17..32, n1 in 33..64"
    assert chosen(tuning) == {key: ex.name}
    (entry,) = tuning.entries
    assert entry.sizes == "n0 = 20, n1 = 40"
    assert tuning.skipped == {}


def test_a_decision_holds_in_its_range_and_the_borders_are_guards(clock: Clock) -> None:
    ex = for_short(clock)
    tuned = autotune(symbolic(layers, ["torch", ex]), torch.rand(20, 40), timer=clock).compiled
    entries = {}
    for rows in (17, 20, 32, 33, 100, 16, 1000, 2):
        x = torch.rand(rows, 40)
        torch.testing.assert_close(tuned(x), layers(x))
        entries[rows] = (thunder.cache_misses(tuned), calls_by(tuned, ex.name))
    # the borders of both sizes are 16, 32 and 64: four programs, and the executor runs one of them
    assert [misses for misses, _ in entries.values()] == [1, 1, 1, 2, 3, 4, 4, 4]
    assert [runs for _, runs in entries.values()] == [2, 2, 2, 0, 0, 0, 0, 0]


def test_a_placement_of_all_sizes_is_measured_range_by_range(clock: Clock, tmp_path: Path) -> None:
    ex, lock = for_short(clock), tmp_path / "thunder.lock.toml"
    compiled = symbolic(layers, ["torch", ex])
    for rows in (20, 60, 30, 10):
        autotune(compiled, torch.rand(rows, 40), timer=clock, lock=lock)
    assert len(clock.units) == 3  # 30 is in the range of 20
    assert [entry.executor for entry in read(lock)] == [ex.name, ex.name, "torch"]
    same = symbolic(layers, ["torch", ex], placement=str(lock))
    runs = {}
    for rows in (5, 18, 31, 64, 70):
        x = torch.rand(rows, 40)
        torch.testing.assert_close(same(x), layers(x))
        runs[rows] = calls_by(same, ex.name)
    assert runs == {5: 2, 18: 2, 31: 2, 64: 0, 70: 0}


def test_the_backward_follows_the_ranges_of_the_forward(clock: Clock) -> None:
    ex = for_short(clock)

    def program(x: torch.Tensor) -> torch.Tensor:
        return gelu(x.sin()).sum()

    tuned = autotune(
        symbolic(program, ["torch", ex]), torch.rand(20, 4, requires_grad=True), timer=clock
    ).compiled
    for rows in (20, 40, 25):
        x = torch.rand(rows, 4, requires_grad=True)
        (gradient,) = torch.autograd.grad(tuned(x), x)
        torch.testing.assert_close(gradient, torch.autograd.grad(program(x), x)[0])


class SymbolicRegions(Regions):
    symbolic_sizes = True


@pytest.mark.parametrize(("us", "left"), [(20.0, False), (90.0, True)])
def test_regions_of_symbolic_sizes_have_ranges(clock: Clock, us: float, left: bool) -> None:
    ex = SymbolicRegions(clock, us)

    def program(x: torch.Tensor) -> torch.Tensor:
        return gelu(torch.sin(x))

    tuned = autotune(symbolic(program, [ex]), torch.rand(20, 4), timer=clock)
    (entry,) = tuned.entries
    assert entry.key.endswith(" with n0 in 17..32, n1 in 0..16")
    assert (entry.executor, round(entry.figures[CALLS].us)) == (CALLS if left else ex.name, TORCH)
    for rows in (25, 200):
        x = torch.rand(rows, 4)
        assert torch.equal(tuned.compiled(x), program(x))
        owner = thunder.explain(tuned.compiled).rows[0].claimed_by
        assert owner == ("torch" if left and rows == 25 else ex.name)


def test_placement_measured_tunes_each_range(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thunder_autotune.measured.WallTimer", lambda: clock)
    ex = for_short(clock)
    compiled = symbolic(layers, ["torch", ex], placement="measured")
    runs = {}
    for rows in (20, 31, 60, 64):
        x = torch.rand(rows, 40)
        torch.testing.assert_close(compiled(x), layers(x))
        runs[rows] = (calls_by(compiled, ex.name), len(clock.units))
    assert runs == {20: (2, 1), 31: (2, 1), 60: (0, 2), 64: (0, 2)}


def test_a_size_that_depends_on_data_has_no_range(clock: Clock) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return gelu(x[x > 0.5]).sum()

    ex = for_short(clock)
    tuning = autotune(symbolic(program, ["torch", ex]), torch.rand(20), timer=clock)
    assert len(tuning.entries) == 0 or "n1" not in str(tuning.entries)
    x = torch.rand(33)
    torch.testing.assert_close(tuning.compiled(x), program(x))


def test_borders_are_read_from_keys() -> None:
    keys = ["f(cpu f32[n0]) with n0 in 0..16", "0123 with n0 in 17..32, n1 in 65..", "f(cpu f32[4])"]
    assert borders_in(keys) == {16, 32, 64}
    assert borders_in(()) == set()


def test_expressions_of_sizes_are_in_keys(clock: Clock) -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gelu(torch.cat([x, y])) + gelu(x.T.contiguous()).sum()

    tuning = autotune(
        symbolic(program, ["torch", for_short(clock)]), torch.rand(3, 5), torch.rand(4, 5), timer=clock
    )
    assert set(chosen(tuning)) == {
        f"{GELU}(cpu f32[n0 + n1, n2], approximate='none') with n0 in 0..16, n1 in 0..16, n2 in 0..16",
        f"{GELU}(cpu f32[n0, n1], approximate='none') with n0 in 0..16, n1 in 0..16",
    }
