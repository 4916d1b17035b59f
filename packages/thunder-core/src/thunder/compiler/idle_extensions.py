"""Executors and transforms that have no effect on this machine, or on any program so far, and why."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterable, Iterator

from thunder.base.errors import PluginError, ThunderWarning
from thunder.base.extension_origin import origin_of
from thunder.base.plugin_calls import kind_of
from thunder.compiler.ledger_rows import ExecutorReason
from thunder.executor_base.executor import Executor
from thunder.executor_base.refusal import Refusal, sentence
from thunder.passes.transform import Transform, calling_hook

__all__ = ["idle_extensions", "warn_of_idle_extensions"]


def idle_extensions(
    executors: Iterable[Executor], transforms: Iterable[Transform]
) -> tuple[ExecutorReason, ...]:
    """Return a reason for each executor and transform that says that it has no effect.

    Raises PluginError for a `no_effect` that raises, or returns neither a Refusal nor None.
    """
    return tuple(ExecutorReason.of(name, reason) for name, reason in _reasons(executors, transforms))


def warn_of_idle_extensions(executors: Iterable[Executor], transforms: Iterable[Transform]) -> None:
    """Warn of executors and transforms without effect, once in a process for each of them and its reason."""
    for reason in idle_extensions(executors, transforms):
        _warn_once(f"{reason.executor} has no effect: {sentence(reason.message, reason.facts)}")


@functools.cache
def _warn_once(text: str) -> None:
    warnings.warn(text, ThunderWarning, stacklevel=8)


def _reasons(executors: Iterable[Executor], transforms: Iterable[Transform]) -> Iterator[tuple[str, Refusal]]:
    for executor in executors:
        reason = executor.no_effect()
        if reason is not None:
            yield executor.name, _checked(executor, reason)
    for transform in transforms:
        with calling_hook(transform, "no_effect"):
            reason = transform.no_effect()
        if reason is not None:
            yield type(transform).__name__, _checked(transform, reason)


def _checked(extension: Executor | Transform, reason: object) -> Refusal:
    if isinstance(reason, Refusal):
        return reason
    raise PluginError(
        f"{type(extension).__name__}.no_effect returned {kind_of(reason)}",
        found={"expected": "a Refusal, or None"},
    ).blame(origin_of(type(extension)))
