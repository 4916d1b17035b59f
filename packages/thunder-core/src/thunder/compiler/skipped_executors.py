"""Reasons why executors were not consulted: about one call, or in a whole compile.

They are derived from the placements when a user asks for the ledger, so a compile does not pay for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

from thunder.compiler.ledger_codes import AbsenceCode, SkipCode
from thunder.compiler.ledger_rows import ExecutorReason
from thunder.executor_base.executor import Executor
from thunder.passes.placement import Placement
from thunder.plugins.manager import PluginManager, get_manager
from thunder.plugins.specs import ExecutorSpec, Unavailable

__all__ = ["absent_executors", "skipped_executors"]


def skipped_executors(placement: Placement, executors: Sequence[str]) -> tuple[ExecutorReason, ...]:
    """Return a reason for each executor that neither claimed the call nor refused it."""
    consulted = {name for name, _ in placement.refusals}
    if placement.claimed_by is not None:
        consulted.add(placement.claimed_by)
    return tuple(
        ExecutorReason(name, *_skip_reason(placement, executors, name), {})
        for name in executors
        if name not in consulted
    )


def _skip_reason(placement: Placement, executors: Sequence[str], name: str) -> tuple[SkipCode, str]:
    owner = placement.claimed_by
    if placement.via == "decomposed":
        return "replaced", f"{placement.symbol} was replaced by other calls, and {name} has no code for it"
    fusers = [n for n, refusal in placement.refusals if refusal.code == "not-fused"]
    if fusers:
        return "claimed-earlier", f"{fusers[0]} claimed the call first, and left it to the fallback executors"
    if placement.via == "always":
        return (
            "fixed",
            "an execution transform recorded the call, for the fallback executors alone",
        )
    if placement.cost is not None:
        return "no-cost", f"implementations were compared by their costs, and {name} gives none"
    executors = placement.order or executors
    if owner in executors and name in executors and executors.index(owner) < executors.index(name):
        return "claimed-earlier", f"{owner} comes first in the list, and claimed the call"
    return "already-executable", f"{placement.symbol} runs as it is"


def absent_executors(executors: Sequence[Executor]) -> tuple[ExecutorReason, ...]:
    """Return a reason for each registered executor, or plugin, that is not listed."""
    manager = get_manager()
    listed = {name for executor in executors for name in (executor.name, *executor.aliases)}
    listing = ", ".join(executor.name for executor in executors)
    reasons = [
        ExecutorReason(spec.name, *_absence(manager, spec, listing), {})
        for spec in manager.executor_specs()
        if spec.name not in listed
    ]
    return (*reasons, *_unloaded_plugins(manager))


def _absence(manager: PluginManager, spec: ExecutorSpec, listing: str) -> tuple[AbsenceCode, str]:
    """Return why an executor is absent; it is imported for that, as a compile that lists it imports it."""
    if spec.missing:
        return "unavailable", f"needs {', '.join(spec.missing)}, which is not installed"
    resolved = manager.resolve(spec)
    if isinstance(resolved, Unavailable):
        return "unavailable", resolved.reason
    return "not-listed", f"it is not among the executors of this compile: {listing}"


def _unloaded_plugins(manager: PluginManager) -> Iterator[ExecutorReason]:
    """Yield a reason for each unloaded plugin; its executor usually has the plugin's name."""
    for info in manager.list_plugins():
        if not info.is_loaded:
            reason = (info.reason or "").partition("\n")[0]
            code = cast(AbsenceCode, info.state.value)
            yield ExecutorReason(info.name, code, f"its plugin is {info.state}: {reason}", {})
