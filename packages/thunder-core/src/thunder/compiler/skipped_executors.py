"""Why executors were not asked: about one call, or in a whole compile. Found out when somebody wants to know.

| code | of one call |
|---|---|
| `behind` | an executor before it took the call |
| `stands` | the call runs as it stands, and the executor has no other implementation of it |
| `final` | an execution transform made the call; only the always-executors run such |

| code | of the whole compile |
|---|---|
| `not-listed` | it is registered, and not among the executors of the compile |
| `unavailable` | it cannot be used here |
| `failed`, `incompatible`, `disabled` | so is the plugin of this name |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from thunder.compiler.ledger_records import RefusalRecord
from thunder.executor_base.executor import Executor
from thunder.passes.placement import Placement
from thunder.plugins.manager import PluginManager, get_manager
from thunder.plugins.specs import ExecutorSpec, Unavailable

__all__ = ["absent_executors", "unasked_of"]


def unasked_of(placement: Placement, executors: Sequence[str]) -> tuple[RefusalRecord, ...]:
    """A record for each executor of the compile that has neither taken the call nor refused it."""
    asked = {name for name, _ in placement.refusals}
    if placement.claimed_by is not None:
        asked.add(placement.claimed_by)
    rest = [name for name in executors if name not in asked]
    if not rest:
        return ()
    return tuple(RefusalRecord(name, *_reason(placement, executors, name), {}) for name in rest)


def _reason(placement: Placement, executors: Sequence[str], name: str) -> tuple[str, str]:
    owner = placement.claimed_by
    takers = [n for n, refusal in placement.refusals if refusal.code == "not-fused"]
    if takers:
        return "behind", f"{takers[0]} had taken the call, and left it to the always-executors"
    if placement.via == "always":
        return "final", "an execution transform made the call, so only the always-executors were asked"
    if owner in executors and executors.index(owner) < executors.index(name):
        return "behind", f"{owner} stands before it and took the call"
    return "stands", f"{placement.symbol} runs as it stands"


def absent_executors(executors: Sequence[Executor]) -> tuple[RefusalRecord, ...]:
    """A record for each executor that is known, by itself or by its plugin, and not among these."""
    manager = get_manager()
    listed = {name for executor in executors for name in (executor.name, *executor.aliases)}
    listing = ", ".join(executor.name for executor in executors)
    records = [
        RefusalRecord(spec.name, *_absence(manager, spec, listing), {})
        for spec in manager.executor_specs()
        if spec.name not in listed
    ]
    return (*records, *_of_plugins(manager))


def _absence(manager: PluginManager, spec: ExecutorSpec, listing: str) -> tuple[str, str]:
    """Imports nothing: of an executor that nobody has wanted yet, it is not known whether it works."""
    resolved = manager.resolved(spec)
    if spec.missing:
        return "unavailable", f"needs {', '.join(spec.missing)}, which is not installed"
    if isinstance(resolved, Unavailable):
        return "unavailable", resolved.reason
    return "not-listed", f"it is not among the executors of this compile: {listing}"


def _of_plugins(manager: PluginManager) -> Iterator[RefusalRecord]:
    """Plugins that are not loaded: what they would have brought is often called like them."""
    for info in manager.list_plugins():
        if not info.is_loaded:
            reason = (info.reason or "").partition("\n")[0]
            yield RefusalRecord(info.name, info.state.value, f"its plugin is {info.state}: {reason}", {})
