"""What was measured of one call or region: the figures, what is wrong, and the executor that was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from thunder_autotune.ways import CALLS, Way

__all__ = ["CALLS", "KINDS", "Entries", "Entry", "Figure", "Kind", "time_text"]

Kind = Literal["call", "region"]
KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True)
class Figure:
    """The time of one candidate: the median and half the distance between the quartiles, in microseconds."""

    us: float
    spread: float = 0.0

    def beats(self, other: Figure) -> bool:
        """Return whether this time is shorter by more than the spread of either."""
        return self.us + max(self.spread, other.spread) < other.us


@dataclass(frozen=True, kw_only=True)
class Entry:
    """The decision about a call or a region on one machine.

    `key` is that of :mod:`thunder_autotune.keys`. `executor` says how it is run: the text of a
    `Way`. `default` is what runs it without a placement. `refused` says why executors that
    accept the call are out. `profile` names the device on which it was measured, `versions` the software.
    `reason` says why the decision is not the fastest one, if it is not.
    """

    kind: Kind
    key: str
    executor: str
    default: str
    profile: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    #: the calls of a region, for readers
    calls: str = ""
    reason: str = ""
    #: the symbolic sizes with which it was measured
    sizes: str = ""

    @property
    def way(self) -> Way:
        """How it is run."""
        return Way.of(self.executor)

    @property
    def fastest(self) -> str:
        """The candidate that wins alone: another than the default has to win by more than the spread."""
        best = self.default
        for name, figure in sorted(self.figures.items(), key=lambda item: item[1].us):
            if best not in self.figures or figure.beats(self.figures[best]):
                return name
        return best

    @property
    def baseline(self) -> str:
        """The executor without a decision: the default, or the fastest that is right where that is wrong."""
        return self.fastest if self.default in self.refused else self.default

    @property
    def gain(self) -> float:
        """The time that the fastest candidate saves each time, in microseconds."""
        if self.default not in self.figures or self.fastest not in self.figures:
            return 0.0
        return self.figures[self.default].us - self.figures[self.fastest].us

    def chosen(self, executor: str, reason: str = "") -> Entry:
        """Return the entry with another decision."""
        return replace(self, executor=executor, reason=reason)

    def is_stale(self, versions: Mapping[str, str]) -> dict[str, tuple[str, str]]:
        """Return the software whose version differs: name → (then, now)."""
        return {
            name: (then, versions[name])
            for name, then in self.versions.items()
            if name in versions and versions[name] != then
        }

    def text(self) -> str:
        """Return figures and refusals as a sentence: ``inductor 41 µs, torch 63 µs, acme refused: …``."""
        ordered = sorted(self.figures.items(), key=lambda item: (item[1].us, item[0]))
        parts = [f"{name} {time_text(figure.us)}" for name, figure in ordered]
        return ", ".join([*parts, *(f"{name} refused: {why}" for name, why in sorted(self.refused.items()))])


class Entries:
    """Entries by what they are about: (kind, key), and for each the profiles on which it was measured."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self._by_key: dict[tuple[Kind, str], dict[str, Entry]] = {}
        for entry in entries:
            self.add(entry)

    def add(self, entry: Entry) -> None:
        """Add an entry; it takes the place of one about the same on the same profile."""
        self._by_key.setdefault((entry.kind, entry.key), {})[entry.profile] = entry

    def find(self, kind: Kind, key: str | None, profile: str) -> Entry | None:
        """Return the entry for a key: that of the profile, else that of the first profile by name."""
        found = None if key is None else self._by_key.get((kind, key))
        if not found:
            return None
        return found.get(profile) or found[min(found)]

    def measured(self, kind: Kind, key: str, profile: str) -> Entry | None:
        """Return the entry that was measured on this profile, or None."""
        return self._by_key.get((kind, key), {}).get(profile)

    def without(self, removed: Iterable[Entry]) -> Entries:
        """Return the entries without some."""
        gone = {(entry.kind, entry.key, entry.profile) for entry in removed}
        return Entries(entry for entry in self if (entry.kind, entry.key, entry.profile) not in gone)

    def __iter__(self) -> Iterator[Entry]:
        """Yield all entries: calls, then regions, each in the order of their keys and profiles."""
        for _, by_profile in sorted(self._by_key.items()):
            for _, entry in sorted(by_profile.items()):
                yield entry

    def __repr__(self) -> str:
        return f"{len(self)} entries: {'; '.join(f'{e.key}: {e.executor}' for e in self)}"

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def __eq__(self, other: Any) -> bool:
        return isinstance(other, Entries) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def time_text(us: float) -> str:
    """Return a time in microseconds with three digits: ``41.3 µs``, ``1.26 ms``."""
    for limit, factor, unit in ((1e3, 1.0, "µs"), (1e6, 1e-3, "ms")):
        if us < limit:
            return f"{us * factor:.3g} {unit}"
    return f"{us * 1e-6:.3g} s"
