"""What is noted of each compile while a process runs: its reasons and its times.

An entry of a cache does not say why it was compiled. The hook `thunder_compiled` does, at that time only; so
its events are kept as texts, for as long as their entries live.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any
from weakref import WeakKeyDictionary

from thunder.plugins import CompileEvent

__all__ = [
    "CompileRecord",
    "Reason",
    "failures_of",
    "note_compile",
    "noting_programs",
    "record_of",
    "short_text",
]


@dataclass(frozen=True, kw_only=True)
class Reason:
    """The first fact of an entry that a call did not meet, with the expected and the found value as texts.

    `entry` is the number of that entry, None if its compile was not noted; `now_free` are the sizes that have
    become inputs for it.
    """

    entry: int | None
    fact: str
    expected: str
    found: str
    source: str
    now_free: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class CompileRecord:
    """One compile: why it was needed, the times of its stages (ns), and what was tried.

    `number` is 1 for the first of the object, `error` the text of the exception with which it failed, or
    None.
    """

    number: int
    reasons: tuple[Reason, ...]
    stage_ns: Mapping[str, int]
    tried: tuple[str, ...]
    error: str | None


#: entry → its compile; statistics of an object → its failed compiles
_records: WeakKeyDictionary[Any, CompileRecord] = WeakKeyDictionary()
_failures: WeakKeyDictionary[Any, list[CompileRecord]] = WeakKeyDictionary()
#: lists to which settings and statistics of each object that is compiled are added
_noting: list[list[tuple[Any, Any]]] = []

#: packages whose objects are shown by their `repr`; that of others is code of the program, which must not run
_SHOWN = frozenset({"builtins", "collections", "functools", "numpy", "thunder", "torch", "types", "typing"})


class _Texts(reprlib.Repr):
    """Shortened texts of values, for which no code of the program runs."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 300
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = 24

    def repr_instance(self, x: Any, level: int) -> str:
        kind = type(x)
        if isinstance(x, Enum):
            return f"{kind.__qualname__}.{x.name}"
        if kind.__module__.partition(".")[0] not in _SHOWN:
            return f"<{kind.__qualname__} object>"
        return super().repr_instance(x, level)


_TEXTS = _Texts()


def short_text(value: object) -> str:
    """Return the `repr` of a value, shortened; of an object of the program, its class."""
    return _TEXTS.repr(value)


def note_compile(event: CompileEvent) -> None:
    """Keep the event of a compile, of which only texts remain."""
    record = CompileRecord(
        number=event.count,
        reasons=tuple(map(_reason, event.reasons)),
        stage_ns=dict(event.stage_times),
        tried=tuple(str(step) for step in event.steps if step.why is not None),
        error=None if event.error is None else f"{type(event.error).__name__}: {event.error}",
    )
    if event.entry is not None:
        _records[event.entry] = record
    if event.compiled is None:
        return
    data, stats = event.compiled
    if event.entry is None:
        _failures.setdefault(stats, []).append(record)
    for programs in _noting:
        if all(known is not stats for _, known in programs):
            programs.append((data, stats))


def _reason(reason: Any) -> Reason:
    known = _records.get(reason.entry)
    return Reason(
        entry=None if known is None else known.number,
        fact=reason.fact,
        expected=short_text(reason.expected),
        found=short_text(reason.found),
        source=reason.source,
        now_free=tuple(reason.now_free),
    )


def record_of(entry: Any) -> CompileRecord | None:
    """Return the compile of an entry; None if it was compiled while the plugin was not loaded."""
    return _records.get(entry)


def failures_of(stats: Any) -> tuple[CompileRecord, ...]:
    """Return the failed compiles of an object, by its statistics."""
    return tuple(_failures.get(stats, ()))


@contextmanager
def noting_programs() -> Iterator[list[tuple[Any, Any]]]:
    """Within the context, add the settings and statistics of what is compiled to a list."""
    programs: list[tuple[Any, Any]] = []
    _noting.append(programs)
    try:
        yield programs
    finally:
        _noting[:] = [other for other in _noting if other is not programs]
