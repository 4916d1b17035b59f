"""Tasks in threads have the results and errors of a loop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

import pytest

from thunder.base.concurrent_tasks import run_together
from thunder.base.progress_bar import ProgressBar

#: seconds after which a test that waits for another thread fails
PATIENCE = 30


def run(tasks: Sequence[Callable[[], Any]], workers: int = 2) -> list[Any]:
    """Return the results of tasks, without a bar."""
    return run_together(tasks, workers=workers, bar=ProgressBar(len(tasks), "tasks", enabled=False))


def test_tasks_run_at_the_same_time_and_results_keep_the_order_of_tasks() -> None:
    barrier, second_is_done = threading.Barrier(2, timeout=PATIENCE), threading.Event()

    def first() -> str:
        barrier.wait()
        assert second_is_done.wait(PATIENCE)
        return "first"

    def second() -> str:
        barrier.wait()
        second_is_done.set()
        return "second"

    assert run([first, second]) == ["first", "second"]


def test_one_worker_runs_tasks_in_the_callers_thread_in_order() -> None:
    threads: list[int] = []
    run([lambda: threads.append(threading.get_ident())] * 3, workers=1)
    assert threads == [threading.get_ident()] * 3


@pytest.mark.parametrize("workers", [1, 2])
def test_the_error_is_that_of_the_first_task_that_fails(workers: int) -> None:
    barrier = threading.Barrier(workers, timeout=PATIENCE)
    second_failed = threading.Event()

    def first() -> None:
        barrier.wait()
        if workers == 2:
            assert second_failed.wait(PATIENCE)
        raise ValueError("first")

    def second() -> None:
        barrier.wait()
        second_failed.set()
        raise ValueError("second")

    with pytest.raises(ValueError, match="first"):
        run([first, second], workers)


def test_tasks_that_have_not_begun_when_one_fails_do_not_run() -> None:
    ran: list[int] = []
    release = threading.Event()

    class Bar(ProgressBar):
        """Lets the other worker go on after the failure was noticed."""

        def advance(self, pieces: int = 1) -> None:
            threading.Timer(0.1, release.set).start()

    def fail() -> None:
        raise ValueError("no")

    tasks = [fail, *[lambda: ran.append(release.wait(PATIENCE))] * 100]
    with pytest.raises(ValueError, match="no"):
        run_together(tasks, workers=2, bar=Bar(len(tasks), "tasks"))
    assert len(ran) <= 4, "those that had begun"


def test_each_task_has_the_callers_context_variables() -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("caller")

    def read_and_set() -> str:
        value = variable.get()
        variable.set("task")
        return value

    assert run([read_and_set] * 4) == ["caller"] * 4
    assert variable.get() == "caller"


def test_a_bar_appears_while_tasks_run() -> None:
    shown = threading.Event()

    class Bar(ProgressBar):
        """A bar whose time has come."""

        @property
        def seconds_left(self) -> float | None:
            return None if shown.is_set() else 0.0

        def refresh(self) -> None:
            shown.set()

    results = run_together([lambda: shown.wait(PATIENCE)] * 2, workers=2, bar=Bar(2, "tasks"))
    assert results == [True, True]
