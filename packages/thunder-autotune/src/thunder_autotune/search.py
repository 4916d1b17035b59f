"""Which measured decisions are used together: a greedy search with runs of the whole program.

What wins alone may lose in company: neighbours share caches and layouts, and regions are cut where a call
leaves them. So all changes are measured together first; if the program is not faster, one after the other is
added, that which promises most first, and stays if the program is faster with it. What is chosen is measured
against the default once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from thunder_autotune.entries import Entries, Entry, Figure
from thunder_autotune.units import Unit
from thunder_autotune.ways import Way

__all__ = ["NOT_TRIED", "Change", "Outcome", "change_of", "search"]

#: the reasons of decisions that are not the fastest alone
NOT_FASTER = "it is faster alone, and the program is not faster with it"
NOT_TRIED = "it is faster alone, and the time was over before the program was measured with it"


@dataclass(frozen=True)
class Change:
    """An entry whose fastest candidate is not the baseline, and how often the program has it.

    `calls` are entries that go with it: where another fusion executor compiles a region, its calls are that
    executor's; where a region is cut, those of its parts.
    """

    entry: Entry
    count: int
    calls: tuple[Entry, ...] = ()

    @property
    def promise(self) -> float:
        """The time that the program would save if nothing else changed, in microseconds."""
        return self.entry.gain * self.count


def change_of(entry: Entry, unit: Unit, entries: Entries) -> Change:
    """Return the change to what is fastest alone; `entries` are what was measured beside it."""
    if Way.of(entry.fastest).cuts:
        parts = tuple(
            part.chosen(part.fastest, f"a part of a region of {entry.calls}") for part in unit.parts
        )
        return Change(entry, len(unit.places), parts)
    calls: list[Entry] = []
    if entry.kind == "region" and entry.fastest in {other.name for other in unit.accepting}:
        for key in dict.fromkeys(unit.call_keys):
            found = entries.measured("call", key, entry.profile)
            call = found or replace(entry, kind="call", key=key, figures={}, refused={}, calls="")
            calls.append(call.chosen(entry.fastest, f"in a region of {entry.calls}"))
    return Change(entry, len(unit.places), tuple(calls))


@dataclass(frozen=True)
class Outcome:
    """The decisions: `entries`, and the times of the program by default and with them.

    `default` and `tuned` are None where no change was promising, or none was measured.
    """

    entries: Entries
    default: Figure | None = None
    tuned: Figure | None = None
    why: str = ""


#: measures the default and the program with some entries in turns; None where its results differ
Comparison = Callable[[Entries], tuple[Figure, Figure] | None]


def search(entries: Iterable[Entry], changes: Sequence[Change], compare: Comparison) -> Outcome:
    """Return the decisions with which the program is faster than by default, or those of the default."""
    base = Entries(entry.chosen(entry.baseline) for entry in entries)
    if not changes:
        return Outcome(base, why="no candidate is faster than the default by more than the spread")
    ordered = sorted(changes, key=lambda change: (-change.promise, change.entry.key))
    everything = _with(base, ordered)
    if _is_faster(compare(everything)):
        return _confirmed(base, ordered, compare)
    if len(ordered) == 1:
        return Outcome(
            _told(base, ordered, NOT_FASTER), why="the program is not faster with what is faster alone"
        )
    kept: list[Change] = []
    best: Figure | None = None
    for change in ordered:
        found = compare(_with(base, [*kept, change]))
        if found is not None and _is_faster(found) and (best is None or found[1].us < best.us):
            kept.append(change)
            best = found[1]
    rejected = [change for change in ordered if change not in kept]
    if not kept:
        return Outcome(
            _told(base, ordered, NOT_FASTER), why="the program is not faster with what is faster alone"
        )
    outcome = _confirmed(base, kept, compare)
    return replace(outcome, entries=_told(outcome.entries, rejected, NOT_FASTER))


def _confirmed(base: Entries, kept: Sequence[Change], compare: Comparison) -> Outcome:
    """Measure once more; return the decisions if the program is faster again, else those of the default."""
    chosen = _with(base, kept)
    found = compare(chosen)
    if found is not None and _is_faster(found):
        return Outcome(chosen, *found)
    default, tuned = found or (None, None)
    why = "the program was not faster when it was measured once more"
    return Outcome(_told(base, kept, NOT_FASTER), default, tuned, why)


def _is_faster(found: tuple[Figure, Figure] | None) -> bool:
    return found is not None and found[1].beats(found[0])


def _with(base: Entries, changes: Iterable[Change]) -> Entries:
    chosen = [[change.entry.chosen(change.entry.fastest), *change.calls] for change in changes]
    return Entries([*base, *(entry for entries in chosen for entry in entries)])


def _told(entries: Entries, changes: Iterable[Change], reason: str) -> Entries:
    """Return entries in which changes that are not used have the reason."""
    told = (change.entry.chosen(change.entry.baseline, reason) for change in changes)
    return Entries([*entries, *told])
