"""Each part of the soak, small: `hatch run soak` has more of it."""

from __future__ import annotations

import gc
import os
import sys
import threading
import warnings
from pathlib import Path

import pytest
import torch

import thunder
from new_processes import run_python
from soak import dropped_models, interrupts, recompiles, shared_function, worker_processes
from soak.memory_use import MemoryUse, assert_flat
from thunder.base.collector import collector_paused
from thunder.plugins.discovery import Candidate
from thunder.plugins.manager import PluginManager

#: Python ignores an interrupt in a finalizer, or in a generator that is closed
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
ON_POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")


@pytest.mark.parametrize("cache", [None, "symbolic values", "constant values"])
def test_threads_share_one_compiled_module(cache: str | None) -> None:
    done = shared_function.shared_by_threads(8, 6, 0, executors=["torch"], cache=cache)
    assert done["calls"] == 48


def test_a_wrong_result_in_a_thread_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def another(*_: object, **__: object) -> None:
        raise AssertionError("another result")

    monkeypatch.setattr(torch.testing, "assert_close", another)
    with pytest.raises(AssertionError, match=r"1 of 1 threads failed:(.|\n)*another result"):
        shared_function.shared_by_threads(1, 1, 0, executors=["torch"])


@pytest.mark.parametrize("kind", recompiles.KINDS)
def test_recompiles_leave_nothing(kind: str) -> None:
    assert recompiles.recompiled(kind, 8)["compiles"] == 8


def test_what_is_left_is_found() -> None:
    before = MemoryUse.now()
    kept = [[i] for i in range(300)]
    with pytest.raises(AssertionError, match="objects were left"):
        assert_flat(before, MemoryUse.now(), objects=200, resident=1000)
    assert len(kept) == 300


def test_models_that_are_dropped_leave_nothing() -> None:
    assert dropped_models.dropped(2)["models"] == 2


@ON_POSIX
@pytest.mark.multi_process
def test_a_fork_in_the_middle_of_a_compile_compiles() -> None:
    assert worker_processes.forked_while_compiling(4)["forks"] == 4


@ON_POSIX
def test_a_child_that_fails_is_found() -> None:
    def fails() -> None:
        raise ValueError("in the child")

    assert "in the child" in str(worker_processes.in_child(fails))
    assert worker_processes.in_child(lambda: None) is None


@ON_POSIX
@pytest.mark.multi_process
def test_workers_of_a_data_loader_compile() -> None:
    assert worker_processes.loaded_by_workers("fork", 1, 2) == {"samples by fork": 2}


@pytest.mark.parametrize("kind", interrupts.KINDS)
@pytest.mark.parametrize("is_warm", [False, True], ids=["compile", "call"])
def test_an_interrupt_leaves_everything_usable(kind: str, is_warm: bool) -> None:
    assert interrupts.interrupted(kind, 2, 0, is_warm=is_warm)["interrupts"] == 2


@ON_POSIX
def test_a_signal_leaves_everything_usable() -> None:
    assert interrupts.by_timer("layers", 2, 0)["calls"] == 2


def test_the_long_run_finds_its_parts() -> None:
    tool = str(Path(__file__).parents[2] / "tools" / "long_run.py")
    done = run_python(tool, "--list")
    assert done.stderr == ""
    parts = [line.split() for line in done.stdout.splitlines()]
    assert [name for name, *_ in parts] == ["threads", "recompiles", "models", "processes", "interrupts"]
    assert sum(int(share.removesuffix("%")) for _, share, _ in parts) == 100


# -- faults that the soak has found


def _interrupt_at(run: object, function: str, event: str = "c_return") -> BaseException | None:
    """Interrupt at the first event in a function of this name."""
    events = interrupts.events_of(interrupts.Interrupted("layers").train)
    number = next(n for n, key in enumerate(events, 1) if key[0] == event and key[1].co_name == function)  # type: ignore[attr-defined]
    return interrupts.at_event(run, number)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "function",
    [
        "collector_paused",  # between `gc.disable()` and its `try`
        "recording",  # gradients are on, a trace is current
        "__enter__",
        "__exit__",
    ],
)
def test_an_interrupt_beside_the_try_of_a_context_manager_leaves_nothing(function: str) -> None:
    interrupts.Interrupted("layers").train()
    tried = interrupts.Interrupted("layers")
    assert isinstance(_interrupt_at(tried.train, function), KeyboardInterrupt)
    assert tried.faults() == []


def test_plugins_whose_loading_was_interrupted_are_loaded_by_the_next_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded: list[str] = []

    def load(name: str) -> object:
        if loaded == ["first"]:
            loaded.append("an interrupt")
            raise KeyboardInterrupt("now")
        loaded.append(name)
        return type(name, (), {})

    monkeypatch.setattr("thunder.plugins.manager.load_target", load)
    names = ("first", "second", "third")
    manager = PluginManager(discover=lambda: [Candidate(name=name, target=name) for name in names])
    with pytest.raises(KeyboardInterrupt, match="now"):
        manager.load()
    assert [info.name for info in manager.list_plugins()] == list(names)
    assert loaded == ["first", "an interrupt", "second", "third"]


def test_a_trace_of_torch_fx_in_another_thread_is_not_this_one() -> None:
    begun, end = threading.Event(), threading.Event()

    class Slow(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            begun.set()
            assert end.wait(60)
            return x + 1

    compiled = thunder.jit(lambda x: x.sin(), executors=["torch"])
    compiled(torch.ones(2))
    thread = threading.Thread(target=lambda: torch.fx.symbolic_trace(Slow()))
    thread.start()
    assert begun.wait(60)
    try:
        torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin())
    finally:
        end.set()
        thread.join()
    assert thunder.cache_misses(compiled) == 2


@ON_POSIX
def test_the_collector_runs_in_a_fork_of_a_process_in_which_a_thread_paused_it() -> None:
    paused, end = threading.Event(), threading.Event()

    def pause() -> None:
        with collector_paused():
            paused.set()
            assert end.wait(60)

    def collects() -> None:
        assert gc.isenabled()

    thread = threading.Thread(target=pause)
    thread.start()
    assert paused.wait(60)
    try:
        assert not gc.isenabled()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # CPython 3.12: a fork beside threads
            assert worker_processes.in_child(collects) is None
        with collector_paused():
            assert not gc.isenabled()
    finally:
        end.set()
        thread.join()
    assert gc.isenabled()
    assert sys.getrecursionlimit() < 10_000
