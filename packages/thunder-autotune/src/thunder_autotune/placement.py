"""A placement in force: what the later stages of a compile ask, and what they say in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thunder.core.errors import RequirementNotMet
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.core.transform_common import Note, Transform
from thunder.extend import Executor, Preference, Refusal, Region, RegionPreference
from thunder_autotune.buckets import Buckets, borders_in
from thunder_autotune.entries import Entries, Entry, time_text
from thunder_autotune.keys import call_key, described, region_key
from thunder_autotune.profiles import profile, versions_of
from thunder_autotune.ways import CALLS, Way

__all__ = ["Placed", "Placement", "UsePlacement", "add_stages"]


@dataclass(frozen=True)
class Placed(Note):
    """What a placement has decided of one program, for `thunder.explain`.

    `used` are the entries that apply, `absent` those whose executor is not part of the compile, `refused`
    those whose executor refuses the call, `stale` the software that has another version than when entries
    were measured: name → (then, now). `profiles` are other devices than this one, where entries are from.
    """

    source: str
    used: tuple[Entry, ...]
    absent: tuple[Entry, ...] = ()
    stale: tuple[tuple[str, str, str], ...] = ()
    profiles: tuple[str, ...] = ()
    #: regions that were compiled and that there is no entry for
    missing: tuple[str, ...] = ()

    def facts(self) -> Mapping[str, Any]:
        """Return the facts as the JSON of `thunder.explain` has them."""
        return {
            "placement": self.source,
            "used": {entry.key: entry.executor for entry in self.used},
            "absent": {entry.key: entry.executor for entry in self.absent},
            "stale": {name: [then, now] for name, then, now in self.stale},
            "measured on": list(self.profiles),
            "without entry": list(self.missing),
        }

    def __str__(self) -> str:
        regions = [entry for entry in self.used if entry.kind == "region"]
        lines = [
            f"placement by {self.source}: {len(self.used) - len(regions)} calls, {len(regions)} regions",
            *(f"  region of {entry.calls}: {entry.text()}" for entry in regions),
            *(f"  {entry.key}: {entry.executor} is not part of this compile" for entry in self.absent),
            *(f"  measured with {name} {then}, and this is {now}" for name, then, now in self.stale),
            *(f"  measured on {name}, and this is {profile()}" for name in self.profiles),
        ]
        return "\n".join(lines)


class Placement:
    """The preferences of one compile, from entries.

    Args:
        source: where the entries are from, for the ledger.
        context: that of the compile.
        is_required: whether a call whose entry cannot be followed is an error.
    """

    def __init__(self, entries: Entries, source: str, context: Any, *, is_required: bool = False) -> None:
        self._entries, self.source = entries, source
        self.buckets = Buckets(borders_in(entry.key for entry in entries))
        self._is_required = is_required
        self._names = {executor.name for executor in context.executors}
        self._versions = versions_of(context.executors)
        self._profile = profile()
        self._used: dict[tuple[str, str], Entry] = {}
        self._absent: dict[tuple[str, str], Entry] = {}
        self._missing: dict[str, None] = {}

    def of_call(self, bsym: BoundSymbol) -> Preference | None:
        """Return the preference for a call, or None."""
        key = None if bsym.sym.executor is not None else call_key(bsym, self.buckets)
        entry = self._entries.find("call", key, self._profile)
        if entry is None:
            return None
        if entry.way.executor not in self._names:
            return self._without(entry, bsym)
        self._used.setdefault((entry.kind, entry.key), entry)
        others = tuple(
            (name, refusal_of(entry, name)) for name in _others(entry) if Way.of(name).executor in self._names
        )
        figure, way = entry.figures.get(entry.executor), entry.way
        return Preference(way.executor, None if figure is None else figure.us, others, way.options)

    def of_region(self, executor: Executor, region: Region) -> RegionPreference | None:
        """Return what becomes of a region, or None: it is compiled as it is."""
        entry = self._entries.find("region", region_key(region, self.buckets), self._profile)
        if entry is None:
            self._missing[f"a region of {executor.name}: {described(region.bsyms)}"] = None
            return None
        way = entry.way
        if way.executor != CALLS and way.executor not in self._names:
            self._without(entry, region.bsyms[0])
            return None
        self._used.setdefault((entry.kind, entry.key), entry)
        if way.executor in (executor.name, *executor.aliases):
            return RegionPreference(cuts=way.cuts, options=way.options)
        return RegionPreference(refusal_of(entry, executor.name))

    def _without(self, entry: Entry, bsym: BoundSymbol) -> Preference:
        reason = f"{self.source} prefers it, and it is not part of this compile"
        if self._is_required:
            raise RequirementNotMet(
                f"{self.source} prefers {entry.executor!r} for {entry.key}, which is absent here",
                where=bsym.locations,
                hint="Add it to executors=, or measure again: python -m thunder tune measure.",
            )
        self._absent.setdefault((entry.kind, entry.key), entry)
        return Preference(None, refusals=((entry.way.executor, Refusal("absent", reason)),))

    def check(self, placements: Iterable[Any]) -> None:
        """Raise RequirementNotMet for a call that another executor runs than its entry has, if required."""
        for placed in placements if self._is_required else ():
            entry = self._entries.find("call", call_key(placed.bsym, self.buckets), self._profile)
            if entry is not None and placed.claimed_by != entry.way.executor:
                raise RequirementNotMet(
                    f"{self.source} prefers {entry.executor!r} for {entry.key}, and "
                    f"{placed.claimed_by or 'no executor'} runs it",
                    found={name: refusal for name, refusal in placed.refusals},
                    where=placed.bsym.locations,
                    hint="Measure again: python -m thunder tune measure.",
                )

    def note(self) -> Placed:
        """Return what was decided so far."""
        used = tuple(self._used.values())
        stale = {
            (name, *versions) for entry in used for name, versions in entry.is_stale(self._versions).items()
        }
        profiles = {entry.profile for entry in used} - {self._profile}
        return Placed(
            self.source,
            used,
            tuple(self._absent.values()),
            tuple(sorted(stale)),
            tuple(sorted(profiles)),
            tuple(self._missing),
        )


def _others(entry: Entry) -> list[str]:
    return [name for name in sorted({*entry.figures, *entry.refused}) if name != entry.executor]


def refusal_of(entry: Entry, name: str) -> Refusal:
    """Return why an executor that accepts a call does not run it, with the figures."""
    if name in entry.refused:
        return Refusal("measured", f"measured: {entry.refused[name]}")
    own, chosen = entry.figures.get(name), entry.figures.get(entry.executor)
    if own is None or chosen is None:
        return Refusal("cost", f"{entry.executor} was chosen" + (f", {entry.reason}" if entry.reason else ""))
    text = f"measured {time_text(own.us)}, {entry.executor} {time_text(chosen.us)}"
    return Refusal("cost", text + (f"; {entry.reason}" if entry.reason else ""))


def add_stages(
    pipeline: Any, name: str, entries: Callable[[], Entries], source: str, *, is_required: bool = False
) -> None:
    """Add the stages that put a placement in force, and note what it has decided.

    `entries` is called when the compile begins.
    """

    def begin(trace: TraceCtx, context: Any) -> TraceCtx:
        placement = context.preferences = Placement(entries(), source, context, is_required=is_required)
        placement.buckets.ask_all(trace)
        return trace

    def end(trace: TraceCtx, context: Any) -> TraceCtx:
        placement = context.preferences
        if isinstance(placement, Placement) and placement.source == source:
            placement.check(context.branch.placements)
            if not context.is_backward:
                context.note(placement.note())
        return trace

    pipeline.add(name, begin, before="functionalise")
    pipeline.add(f"{name}.noted", end, after="codegen")


class UsePlacement(Transform):
    """Lets entries decide which executors run the calls of one compiled object, as long as it exists.

    Args:
        entries: what was measured, with the decisions.
        source: where it is from, for the ledger.
    """

    def __init__(self, entries: Entries, source: str) -> None:
        self.entries, self.source = entries, source

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stages."""
        add_stages(pipeline, "autotune.tuned", lambda: self.entries, self.source)
