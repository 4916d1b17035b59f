"""`placement="measured"`: a program is tuned when it is compiled for its first call."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Final

import torch

import thunder
from thunder.core.entries import CACHE_OPTIONS, CacheEntry, CompileData, TraceRequest, compiled_object
from thunder_autotune.entries import Entries
from thunder_autotune.groups import refuse_process_groups
from thunder_autotune.lock_files import merged
from thunder_autotune.placement import Placed, add_stages
from thunder_autotune.shipped import shipped_entries
from thunder_autotune.timing import WallTimer
from thunder_autotune.tuning import Tuner
from thunder_bisect.slowness.runs import Call

__all__ = ["MEASURED", "configure", "measurements", "tuned_entry"]

#: what the ledger calls the source of these decisions
MEASURED: Final = "what was measured in this process"

#: whether this context tunes: the programs that are compiled for it are not tuned
_is_tuning: ContextVar[bool] = ContextVar("thunder_autotune_is_tuning", default=False)

_lock = threading.Lock()
_measured = Entries()


def configure(pipeline: Any, options: Mapping[str, Any]) -> None:
    """Add the stages by which what was measured decides."""
    add_stages(pipeline, "autotune.placement", measurements, MEASURED)


def measurements() -> Entries:
    """Return what this process has measured, with the last decision about each call."""
    with _lock:
        return _measured


def _note(entries: Entries) -> None:
    global _measured
    with _lock:
        _measured = merged(_measured, entries)


def tuned_entry(entry: CacheEntry, request: TraceRequest, data: CompileData) -> CacheEntry:
    """Return the tuned program for a call in the place of the default one, or the default one.

    A program of answers about data is not tuned, and one with symbolic sizes only with
    `cache="symbolic values"`: the program that takes its place is compiled as for a first call.
    """
    if _is_tuning.get() or request.answers:
        return entry
    if request.sizes is not None and data.cache_option is not CACHE_OPTIONS.SYMBOLIC_VALUES:
        return entry
    refuse_process_groups()
    token = _is_tuning.set(True)
    try:
        tuner = Tuner(
            _object_of(request, data),
            request.args,
            request.kwargs,
            budget=data.compile_options["placement_budget_s"],
            known=merged(shipped_entries(), measurements()),
            timer=WallTimer(),
        )
        try:
            tuner.tuning()
        finally:
            _note(tuner.entries)
        if all(decided.executor == decided.default for decided in tuner.entries):
            others = [note for note in entry.notes if not isinstance(note, Placed)]
            return replace(entry, notes=(*others, Placed(MEASURED, tuple(tuner.entries))))
        return _compiled(entry, request, data)
    finally:
        _is_tuning.reset(token)


def _object_of(request: TraceRequest, data: CompileData) -> Any:
    overrides = None
    if request.overrides is not None and isinstance(data.fn, torch.nn.Module):
        overrides = request.overrides.copied(data.fn)
    return compiled_object(replace(data), overrides)


def _compiled(entry: CacheEntry, request: TraceRequest, data: CompileData) -> CacheEntry:
    """Return the entry of the program with what was decided; it is run once, and what it writes is undone."""
    tuned = _object_of(request, data)
    call = Call(fn=data.fn, args=request.args, kwargs=request.kwargs)
    with call.undone():
        call.run(tuned)
    stats = thunder.compile_stats(tuned)
    found = None if stats is None else stats.last_entry
    assert found is not None, "it was called"
    found.contributions, found.plan, found.steps = entry.contributions, entry.plan, entry.steps
    return found
