"""What became of the compiles of a process: programs that were found, kept, not used or not kept, and why."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

__all__ = ["Event", "events", "note"]


class Event(NamedTuple):
    """What became of one compile: ``"hit"``, ``"kept"``, ``"not kept"`` or ``"not used"``, and why."""

    kind: str
    name: str
    reason: str = ""


_events: deque[Event] = deque(maxlen=256)


def note(kind: str, name: str, reason: str = "") -> None:
    """Add an event."""
    _events.append(Event(kind, name, reason))


def events() -> list[Event]:
    """Return the last 256 events of this process, oldest first."""
    return list(_events)
