"""How a unit is measured: its candidates are compiled, judged, and timed in turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

import torch

from thunder.core.entries import CompileData
from thunder.extend import get_always_executors
from thunder_autotune.candidates import Candidate, candidate_names, candidates_of
from thunder_autotune.cuts import in_two, is_worth_a_cut, part_keys
from thunder_autotune.entries import Entries, Entry, Figure
from thunder_autotune.judging import faults_of, reference_of
from thunder_autotune.profiles import profile, versions_of
from thunder_autotune.timing import Timer, figure_of
from thunder_autotune.unit_values import Subject, made_values
from thunder_autotune.units import Unit
from thunder_autotune.ways import Way

__all__ = ["UnitMeasuring", "without_autocast"]


class UnitMeasuring:
    """Measures units for one compile.

    Args:
        known: entries that are not measured again, if they are of this device and these versions.
        cuts: whether regions are cut, which depends on the times that are measured.

    Attributes:
        measured: how many units were measured, and not known.
        skipped: the units that were not measured, with the reasons.
    """

    def __init__(self, data: CompileData, known: Entries, timer: Timer, *, cuts: bool = True) -> None:
        self._data, self._known, self._timer, self._cuts = data, known, timer, cuts
        self._versions = versions_of(data.executors_list)
        self._profile = profile()
        self.measured = 0
        self.skipped: dict[str, str] = {}

    def known(self, unit: Unit) -> Entry | None:
        """Return the entry that has all candidates of a unit, in their versions of now, or None."""
        entry = self._known.measured(unit.kind, unit.key, self._profile)
        if entry is None or entry.default != unit.default or entry.is_stale(self._versions):
            return None
        if not {*candidate_names(unit)} <= {*entry.figures, *entry.refused}:
            return None
        cuts = Way.of(entry.fastest).cuts
        if cuts:
            parts = [self._known.measured("region", key, self._profile) for key in part_keys(unit, cuts)]
            unit.parts = tuple(part for part in parts if part is not None)
            return entry if len(unit.parts) == len(parts) else None
        return entry

    def entry_of(self, unit: Unit) -> Entry | None:
        """Measure the candidates of a unit; return None where there is one, or no reference."""
        measured = self._measured(unit)
        return None if measured is None else measured[0]

    def _measured(self, unit: Unit) -> tuple[Entry, list[Candidate]] | None:
        """Return the entry of a unit, and its candidates."""
        subject = Subject(unit, unit.values if unit.values is not None else made_values(unit))
        candidates, refused = candidates_of(unit, self._data, subject.inputs)
        reference = reference_of(candidates, [executor.name for executor in get_always_executors()])
        if reference is None or not unit.default:
            name = f"region of {unit.description}" if unit.kind == "region" else unit.key
            self.skipped[name] = "torch does not run it, so nothing says what is right"
            return None
        if len(candidates) < 2 and not refused:
            return None
        refused |= faults_of(subject, candidates, reference)
        right = [c for c in candidates if c.name not in refused]
        figures = self._figures(subject, right)
        self.measured += 1
        if self._cuts and is_worth_a_cut(unit, figures):
            parts = in_two(unit, subject, self._part_entry)
            if parts is not None:
                fault = faults_of(subject, [parts.candidate, reference], reference)
                refused |= fault
                if not fault:
                    unit.parts = parts.entries
                    figures = self._figures(subject, [*right, parts.candidate])
        entry = Entry(
            kind=unit.kind,
            key=unit.key,
            executor=unit.default,
            default=unit.default,
            profile=self._profile,
            figures=figures,
            refused=refused,
            versions=_versions_of(self._versions, [Way.of(name).executor for name in (*figures, *refused)]),
            calls=unit.description if unit.kind == "region" else "",
            sizes=", ".join(f"{name} = {size}" for name, size in unit.sizes.items()),
        )
        return entry, candidates

    def _part_entry(self, part: Unit) -> tuple[Entry, Candidate] | None:
        """Return the entry of a part of a region, and its fastest candidate."""
        measured = self._measured(part)
        if measured is None or not measured[0].figures:
            return None
        entry, candidates = measured
        return entry, next(c for c in candidates if c.name == entry.fastest)

    def _figures(self, subject: Subject, candidates: Sequence[Candidate]) -> dict[str, Figure]:
        """Time candidates in turns."""
        functions = {c.name: c.run for c in candidates}
        for run in functions.values():
            subject.run(run)  # caches are warm, and what is compiled at the first call is compiled
        return {name: figure_of(found) for name, found in self._timer.unit(subject, functions).items()}


def _versions_of(versions: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: versions[name] for name in ("thunder", "torch", *names) if name in versions}


@contextmanager
def without_autocast() -> Iterator[None]:
    """Within the context, torch casts nothing: the casts are in the calls of a trace already."""
    kinds = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    with ExitStack() as stack:
        for kind in kinds:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield
