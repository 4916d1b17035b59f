"""The plugin of thunder-distributed, a group of pretended processes, and one launch of two real ones."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import thunder_distributed
from distributed.launching import Outcome, launched
from thunder.plugins import get_manager


@pytest.fixture(autouse=True)
def _plugin() -> Iterator[None]:
    """Register the plugin, as that of an installed package is."""
    with get_manager().temporary(thunder_distributed, name="distributed-under-test"):
        yield


@contextmanager
def _pretended(size: int) -> Iterator[Any]:
    """Initialise a group of which this process is rank 0; its collectives have no values."""
    dist.init_process_group("fake", rank=0, world_size=size, store=FakeStore())
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


@pytest.fixture
def fake_group() -> Iterator[Any]:
    """Initialise a group of two processes, of which there is this one."""
    with _pretended(2) as group:
        yield group


@pytest.fixture
def fake_four() -> Iterator[Any]:
    """Initialise a group of four processes, of which there is this one."""
    with _pretended(4) as group:
        yield group


@pytest.fixture(scope="session")
def outcomes(tmp_path_factory: pytest.TempPathFactory, whole_run: bool) -> dict[str, list[Outcome]]:
    """Return what each case returned in two processes; they run once in a test run."""
    workers = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    base = tmp_path_factory.getbasetemp()
    shared = Path(base.parent if workers else base) / f"gloo-{workers}"
    shared.mkdir(exist_ok=True)
    with open(shared / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (shared / "outcomes.pt").exists():
            torch.save(launched(2, shared, whole=whole_run), shared / "outcomes.pt")
    result: dict[str, list[Outcome]] = torch.load(shared / "outcomes.pt", weights_only=False)
    return result


@pytest.fixture(scope="module")
def four(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, list[Outcome]]:
    """Return what each case of the test's `FOUR_PROCESSES` returned in each of four processes."""
    modules = tuple(f"distributed.{name}" for name in request.module.FOUR_PROCESSES)
    return launched(4, tmp_path_factory.mktemp("four"), modules)


@pytest.fixture(params=[2, pytest.param(4, marks=pytest.mark.sweep)])
def results(request: pytest.FixtureRequest) -> dict[str, list[Outcome]]:
    """Return what each case returned in two processes, and in a sweep in four."""
    outcomes: dict[str, list[Outcome]] = request.getfixturevalue("outcomes" if request.param == 2 else "four")
    return outcomes
