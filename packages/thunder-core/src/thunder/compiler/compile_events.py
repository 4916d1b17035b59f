"""Notices of compiles: for loggers, and for the plugins that have the hook `thunder_compiled`."""

from __future__ import annotations

from thunder.base.errors import RaisedByProgram
from thunder.base.provenance import own_name
from thunder.compiler.compile_logs import is_logged, log_compile
from thunder.compiler.stats import CacheEntry, CompileData, CompileStats
from thunder.plugins.contributions import notify_compiled
from thunder.plugins.manager import get_manager
from thunder.plugins.specs import CompileEvent

__all__ = ["notify_of_compile"]


def notify_of_compile(
    data: CompileData, stats: CompileStats, entry: CacheEntry | None, error: Exception | None = None
) -> None:
    """Describe the compile that has just ended, or failed with an error, to loggers and plugins.

    Raises PluginError for a plugin of the program that raises.
    """
    manager = get_manager()
    if not manager.implementations("thunder_compiled") and not is_logged():
        return
    event = CompileEvent(
        name=own_name(data.fn, "__qualname__") or type(data.fn).__qualname__,
        count=stats.cache_misses,
        reasons=tuple(stats.last_recompile_reasons),
        stage_times=dict(stats.stage_times) if entry is not None else {},
        steps=tuple(stats.last_compile_steps),
        entry=entry,
        error=error.error if isinstance(error, RaisedByProgram) else error,
        compiled=(data, stats),
    )
    log_compile(event, data, stats)
    notify_compiled(manager, event)
