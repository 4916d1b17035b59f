"""Finds what a program keeps in objects that outlive it, and the proxies in it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from thunder.frontend.epilogue.reconstruction import reconstruction_of
from thunder.frontend.epilogue.value_parts import parts_of
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import Proxy, TensorProxy

__all__ = ["kept_values", "proxies_of"]


def kept_values(session: TracingSession) -> Iterator[Any]:
    """Yield the values that the program has written, so far, to objects that outlive it."""
    for shadow in session.objects.written_shadows():
        yield from (shadow.content.values() if isinstance(shadow.copy, dict) else shadow.content)
    for overlay in session.objects.written_overlays():
        yield from overlay.writes.values()
    for entry in session.objects.written_entries():
        yield from entry.writes.values()
    for _, value in (*session.variables.global_writes.values(), *session.variables.cell_writes.values()):
        yield value


def proxies_of(session: TracingSession, values: Iterable[Any]) -> list[Any]:
    """Return the proxies of which values are built; a value may contain itself."""
    pending, seen, proxies = list(values), dict[int, Any](), []
    while pending:
        value = pending.pop()
        if isinstance(value, TensorProxy | Proxy):
            proxies.append(value)
        elif reconstruction_of(value) is not None and id(value) not in seen:
            seen[id(value)] = value
            pending += parts_of(session, value)
    return proxies
