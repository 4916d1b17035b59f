"""Independent pieces of work in several threads, with the results and errors of a loop over them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from typing import TypeVar

from thunder.base.progress_bar import ProgressBar

__all__ = ["processor_count", "run_together"]

T = TypeVar("T")


def processor_count() -> int:
    """Return the number of CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def run_together(tasks: Sequence[Callable[[], T]], *, workers: int, bar: ProgressBar) -> list[T]:
    """Call functions without arguments, and return their results in the order of `tasks`.

    With several workers they run in threads, each in a copy of the caller's context variables; else in the
    caller's thread. An error is the one that a loop would raise: that of the first task which fails. It is
    raised when no task is running any more, and tasks that have not begun by then do not run.
    """
    if workers <= 1 or len(tasks) <= 1:
        return [_counted(task, bar) for task in tasks]
    pool = ThreadPoolExecutor(min(workers, len(tasks)), thread_name_prefix="thunder-compile")
    try:
        futures = [pool.submit(copy_context().run, task) for task in tasks]
        _wait(futures, bar)
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    # Tasks begin in order: those before the first that fails have all run.
    return [future.result() for future in futures]


def _counted(task: Callable[[], T], bar: ProgressBar) -> T:
    result = task()
    bar.advance()
    return result


def _wait(futures: Sequence[Future[T]], bar: ProgressBar) -> None:
    """Return when all are done, or one has failed."""
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=bar.seconds_left, return_when=FIRST_COMPLETED)
        bar.advance(len(done))
        if any(future.exception() is not None for future in done):
            return
