"""``cache_info()`` and ``cache_clear()`` of functions under ``functools.lru_cache`` in the traced program.

The sizes of a cache are facts. Its hits and misses are other numbers in each call.
A cache that the program clears is cleared by the epilogue.
"""

from __future__ import annotations

import functools
from typing import Any

from thunder.base.cache_queries import CACHED
from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.natives.cached_functions import CachedCalls
from thunder.frontend.objects.unknown_values import UnknownValue
from thunder.frontend.places import READS
from thunder.frontend.session import TracingSession

TABLE = LookasideTable(READS)


def _size_of(fn: Any) -> int:
    """Return the number of entries of a cache."""
    size: int = fn.cache_info().currsize
    return size


@TABLE.bound_lookaside(vars(CACHED)["cache_info"])
def _info(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a cache holds; its hits and misses may only be left unread."""
    (fn,) = args
    name, calls = getattr(fn, "__qualname__", "a function"), session.state(CachedCalls)
    if session.entry_of(fn) is None or calls.results(fn) or id(fn) in calls.cleared:
        raise UnsupportedProgram(
            f"the program asks for the entries of the cache of {name} after it has cleared it, or called it "
            "with a value that it has computed",
            hint="Ask outside the compiled function.",
        )
    session.guard_identity(fn)
    query = functools.partial(_size_of, fn)
    size = query()
    session.note_state(query, f"{name}.cache_info().currsize", size)
    why, hint = "which is another number in each call", "Read it outside the compiled function."
    hits, misses = (UnknownValue(f"{name}.cache_info().{part}", why, hint) for part in ("hits", "misses"))
    info = fn.cache_info()
    return info._replace(hits=hits, misses=misses, currsize=size)


@TABLE.bound_lookaside(vars(CACHED)["cache_clear"])
def _clear(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    (fn,) = args
    calls = session.state(CachedCalls)
    if session.entry_of(fn) is not None:
        session.note_write()
        session.guard_identity(fn)
        calls.cleared[id(fn)] = fn
    calls.results(fn).clear()
