"""Compilation of the regions of a program, together: in threads, with a progress bar."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from thunder.base.concurrent_tasks import processor_count, run_together
from thunder.base.current_options import current_options
from thunder.base.options import CORE_OPTIONS
from thunder.base.progress_bar import ProgressBar

__all__ = ["compile_together", "compile_workers"]

T = TypeVar("T")


def compile_together(
    tasks: Sequence[Callable[[], T]],
    *,
    workers: int | None = None,
    description: str = "compiling regions",
) -> list[T]:
    """Call functions that each compile a part of a program; return their results in the order of `tasks`.

    They run in up to `workers` threads, by default `compile_workers()`, each in a copy of the caller's
    context variables; torch's modes of a thread, as `torch.no_grad()`, are not copied. With one worker
    they run in the caller's thread. After two seconds a progress bar appears on a terminal, unless the
    option `compile_progress` is False. The error of the first task that fails is raised when no task is
    running any more.
    """
    with ProgressBar(len(tasks), description, enabled=_option("compile_progress")) as bar:
        return run_together(tasks, workers=compile_workers() if workers is None else workers, bar=bar)


def compile_workers() -> int:
    """Return how many regions may be compiled at a time: the option `compile_workers`, else the CPUs."""
    workers: int | None = _option("compile_workers")
    return processor_count() if workers is None else max(1, workers)


def _option(name: str) -> Any:
    """Return the value of an option of core in the compile that runs, or its default."""
    options = current_options()
    return CORE_OPTIONS[name].default if options is None else options[name]
