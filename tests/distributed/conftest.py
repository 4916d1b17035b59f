"""The plugin of thunder-distributed, a group of pretended processes, and one launch of two real ones."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

import thunder_distributed
from distributed.launching import Launch, Outcome, launched
from thunder.plugins import get_manager


@pytest.fixture(autouse=True)
def _plugin() -> Iterator[None]:
    """Register the plugin, as that of an installed package is."""
    with get_manager().temporary(thunder_distributed, name="distributed-under-test"):
        yield


@contextmanager
def pretended(size: int, rank: int = 0) -> Iterator[Any]:
    """Initialise a group of which this process is a rank; its collectives have no values."""
    dist.init_process_group("fake", rank=rank, world_size=size, store=FakeStore())
    try:
        yield dist.group.WORLD
    finally:
        dist.destroy_process_group()


@pytest.fixture
def fake_group() -> Iterator[Any]:
    """Initialise a group of two processes, of which there is this one."""
    with pretended(2) as group:
        yield group


@pytest.fixture
def fake_four() -> Iterator[Any]:
    """Initialise a group of four processes, of which there is this one."""
    with pretended(4) as group:
        yield group


def _launch(config: pytest.Config) -> Launch:
    """Return the launch of two processes, which there is once in a test run, whatever its workers."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID")
    base = config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # a hook has no fixtures
    folder = Path(base.parent if run else base) / f"gloo-{run}"
    folder.mkdir(exist_ok=True)
    return Launch(2, folder, whole=bool(config.getoption("--sweep")))


BEGUN = pytest.StashKey[subprocess.Popen[bytes]]()


@pytest.hookimpl(tryfirst=True)  # before a test of any worker runs
def pytest_collection_finish(session: pytest.Session) -> None:
    """Begin the two processes, if a test is about them: they wait often, and other tests run meanwhile."""
    names = {name for item in session.items for name in getattr(item, "fixturenames", ())}
    if session.config.option.collectonly or not names & {"outcomes", "results"}:
        return
    launch = _launch(session.config)
    with open(launch.folder / "lock", "w") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # which the processes keep until they end
        if not (launch.folder / "printed").exists():
            session.config.stash[BEGUN] = launch.begin(lock.fileno())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Wait for what this process has begun: a test of another worker may need it."""
    begun = session.config.stash.get(BEGUN, None)
    if begun is not None:
        begun.wait()


@pytest.fixture(scope="session")
def outcomes(request: pytest.FixtureRequest) -> dict[str, list[Outcome]]:
    """Return what each case returned in two processes; they run once in a test run."""
    begun = request.config.stash.get(BEGUN, None)
    if begun is not None:
        begun.wait()
    launch = _launch(request.config)
    with open(launch.folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
    return launch.outcomes()


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
