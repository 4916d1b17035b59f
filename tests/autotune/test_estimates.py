"""`placement="estimated"`: ranges for devices that are not here, and measurements that packages ship."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu

import thunder
from autotune.traps import GELU, Clock, Regions, executor_of
from thunder.extend import OperatorExecutor
from thunder.plugins import get_manager, hookimpl
from thunder_autotune import Entry, Figure
from thunder_autotune.estimates import Estimate, Estimates
from thunder_autotune.lock_writing import write


def program(x: torch.Tensor) -> torch.Tensor:
    return gelu(x) * 2


#: 64 MiB are read and written: 40 µs at the peak of the memory's rate, and 160 at a quarter of it
LARGE = torch.empty(4096, 4096, device="meta")


def with_cost(us: float) -> OperatorExecutor:
    ex = executor_of(lambda x, approximate: gelu(x, approximate=approximate), "costly")
    symbol = ex.implmap[GELU].symbol
    assert symbol is not None
    ex.register_implementation(GELU, symbol, cost=lambda a, *, approximate="none": us)
    return ex


def planned(executors: list[Any], x: torch.Tensor = LARGE) -> Any:
    return thunder.plan(program, x, device="h100", executors=executors, placement="estimated")


def estimates_of(plan: Any) -> Estimates:
    (note,) = [note for note in plan.ledger.notes if isinstance(note, Estimates)]
    return note


def runs_gelu(plan: Any) -> str | None:
    found: str | None = next(row.claimed_by for row in plan.ledger.rows if row.symbol == GELU)
    return found


def test_an_estimate_of_torch_is_a_range_by_the_roofline() -> None:
    plan = planned([with_cost(1000.0)])
    (row,) = estimates_of(plan).rows
    torch_range = row[1]["torch"]
    bytes_moved, rate = 2 * 4096 * 4096 * 4, 3.35e12
    assert torch_range.low == pytest.approx(2 + bytes_moved / rate * 1e6, rel=0.02)
    assert torch_range.high == pytest.approx(8 + 4 * bytes_moved / rate * 1e6, rel=0.02)
    assert "torch 42.1 µs to 168 µs" in str(estimates_of(plan))


@pytest.mark.parametrize(("us", "chosen"), [(1000.0, "torch"), (5.0, "costly"), (50.0, "costly")])
def test_ranges_that_do_not_meet_decide_and_else_the_order(us: float, chosen: str) -> None:
    ex = with_cost(us)
    plan = planned([ex])
    assert runs_gelu(plan) == (ex.name if chosen == "costly" else "torch")
    refusals = next(row.refusals for row in plan.ledger.rows if row.symbol == GELU)
    assert [reason.code for reason in refusals] == ([] if us == 50.0 else ["cost"])


def test_a_region_shows_both_ranges(clock: Clock) -> None:
    plan = thunder.plan(
        lambda x: gelu(torch.sin(x)),
        LARGE,
        device="h100",
        executors=[Regions(clock, 1.0)],
        placement="estimated",
    )
    (row,) = estimates_of(plan).rows
    assert row[0] == "region of sin, gelu"
    (region, calls) = row[1].values()
    assert calls.low == pytest.approx(2 * region.low)


def test_without_rates_the_order_decides_and_says_so() -> None:
    compiled = thunder.jit(program, executors=[with_cost(1.0)], placement="estimated")
    compiled(torch.rand(4))
    assert "estimated for cpu: no rates are known of cpu" in str(thunder.explain(compiled))


def test_ranges_are_ordered_if_they_do_not_meet() -> None:
    assert Estimate(1.0, 2.0).is_less_than(Estimate(2.5, 3.0))
    assert not Estimate(1.0, 2.0).is_less_than(Estimate(1.5, 3.0))


@contextmanager
def shipping(*paths: Path) -> Iterator[None]:
    class Package:
        @hookimpl
        def thunder_lock_files(self) -> list[Path]:
            return list(paths)

    with get_manager().temporary(Package(), name="shipping"):
        yield


def entry(executor: str, profile: str) -> Entry:
    return Entry(
        kind="call",
        key=f"{GELU}(cuda f32[4096, 4096], approximate='none')",
        executor=executor,
        default="torch",
        profile=profile,
        figures={executor: Figure(30.0, 1.0), "torch": Figure(60.0, 2.0)},
    )


def test_measurements_that_a_package_ships_come_first(tmp_path: Path) -> None:
    ex, file = with_cost(1000.0), tmp_path / "acme.lock.toml"
    write(file, [entry(ex.name, "cuda NVIDIA H100 80GB HBM3"), entry("torch", "cuda NVIDIA A100")])
    with shipping(file):
        plan = planned([ex])
    assert runs_gelu(plan) == ex.name
    row = next(row for row in plan.ledger.rows if row.symbol == GELU)
    assert row.cost == 30.0
    assert [reason.message for reason in row.refusals] == [f"measured 60 µs, {ex.name} 30 µs"]


def test_measurements_of_another_device_do_not_count(tmp_path: Path) -> None:
    ex, file = with_cost(1000.0), tmp_path / "acme.lock.toml"
    write(file, [entry(ex.name, "cuda NVIDIA A100")])
    with shipping(file):
        assert runs_gelu(planned([ex])) == "torch"
