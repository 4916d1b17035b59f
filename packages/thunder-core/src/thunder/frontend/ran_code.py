"""Code that ran as it is while a program was traced: opaque callables, and functions that fill a cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunder.base import opaque_results
from thunder.base.errors import StateChanged
from thunder.frontend.guards import first_failure
from thunder.frontend.natives.cached_functions import CALL_IT_BEFORE, CachedCalls
from thunder.frontend.opaque_calls.opaque_acquisition import OpaqueCalls
from thunder.frontend.session import TracingSession

__all__ = ["has_run_code", "keep_for_another_trace", "refuse_changed_facts"]


def refuse_changed_facts(session: TracingSession, roots: Mapping[str, Any]) -> None:
    """Raise StateChanged if such code has changed what the program had read before."""
    opaque = [call.name for call in session.state(OpaqueCalls).calls]
    cached = session.state(CachedCalls).ran
    if not opaque and not cached:
        return
    failure = first_failure(session.objects.facts, roots["args"], roots["kwargs"])
    if failure is None:
        return
    kind, hint = "a function under functools.lru_cache", CALL_IT_BEFORE
    if opaque:
        kind = "an opaque callable"
        hint = "Mark the function that reads it opaque too, or pass the value as a tensor."
    raise StateChanged(
        f"{kind} has changed the {failure[0]}, which the program had read",
        found={"called": ", ".join((*opaque, *cached))},
        hint=hint,
    )


def has_run_code(session: TracingSession) -> bool:
    """Return whether such code has run."""
    return bool(session.state(OpaqueCalls).calls or session.state(CachedCalls).ran)


def keep_for_another_trace(session: TracingSession, roots: Mapping[str, Any]) -> None:
    """Keep the results of opaque callables, so that another trace for the same call does not run them again.

    Raises StateChanged where another trace would read what they have changed.
    """
    refuse_changed_facts(session, roots)
    if session.state(OpaqueCalls).calls:
        opaque_results.keep()
