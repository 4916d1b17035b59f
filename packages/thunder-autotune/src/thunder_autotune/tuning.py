"""`thunder.autotune`: measure the candidates of a program, and decide which executors run it."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import thunder
from thunder.core.transforms import add_transform
from thunder_autotune.candidates import candidate_names
from thunder_autotune.entries import Entries
from thunder_autotune.groups import Group, slowest
from thunder_autotune.lock_files import read
from thunder_autotune.lock_writing import add_to
from thunder_autotune.placement import UsePlacement
from thunder_autotune.profiles import profile
from thunder_autotune.program_comparison import ProgramComparison
from thunder_autotune.recording import Recording
from thunder_autotune.results import Tuning
from thunder_autotune.search import NOT_TRIED, Outcome, change_of, search
from thunder_autotune.timing import PROGRAM, Timer, WallTimer
from thunder_autotune.unit_measuring import UnitMeasuring, without_autocast
from thunder_bisect.slowness.runs import Call

__all__ = ["Tuner", "Tuning", "autotune"]


class _Over(Exception):
    """The time for tuning is over."""


def autotune(
    compiled: Callable[..., Any],
    /,
    *args: Any,
    budget_s: float = 60.0,
    lock: str | os.PathLike[str] | None = None,
    timer: Timer | None = None,
    **kwargs: Any,
) -> Tuning:
    """Return the program with the fastest right executor for each call and region, and what was measured.

        tuned = thunder.autotune(compiled, x, lock="thunder.lock.toml").compiled

    `compiled` is what `thunder.jit` returned, or a function or module, which is compiled with the default
    settings. Each call that an executor beside torch's accepts, and each region that is compiled, is run
    alone by each candidate on the values that the program has there, in turns. A candidate whose results
    torch does not confirm is out. The fastest are then used together, if the program as a whole is faster.

    Args:
        budget_s: how long it may take, in seconds; what was measured by then is used. A candidate that is
            being compiled is not interrupted.
        lock: a file whose entries of this machine and of these versions are not measured again, and to which
            the new ones are added, also after a KeyboardInterrupt.
        timer: what measures, by default wall time.

    Values of tensors that the program writes and the state of generators are as before at the end. Raises
    what the program raises.

    In a process group all processes call it, and decide the same: a candidate takes the time of the slowest,
    and the first process writes the file. Raises UserError where their programs, devices or files differ.
    """
    group = Group()
    own = compiled if thunder.compile_data(compiled) is not None else thunder.jit(compiled)
    known = group.equal("lock files", partial(_known, lock))
    tuner = Tuner(
        own, args, kwargs, budget=budget_s, known=known, timer=timer or _timer_of(group), group=group
    )
    try:
        return tuner.tuning()
    finally:
        if lock is not None and group.is_first:
            add_to(lock, tuner.entries)


def _known(lock: str | os.PathLike[str] | None) -> Entries:
    return read(lock) if lock is not None and Path(lock).exists() else Entries()


def _timer_of(group: Group) -> WallTimer:
    """Return the timer: programs of processes that wait for each other run equally often."""
    return WallTimer() if group.size == 1 else WallTimer(programs=replace(PROGRAM, most=PROGRAM.fewest))


@dataclass
class Tuner:
    """One tuning: `entries` are what is decided so far."""

    compiled: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    budget: float
    known: Entries
    timer: Timer
    group: Group = field(default_factory=Group)
    entries: Entries = field(default_factory=Entries)

    def __post_init__(self) -> None:
        self._start = time.monotonic()
        data = thunder.compile_data(self.compiled)
        assert data is not None, "it is a compiled object"
        self._call = Call(fn=data.fn, args=self.args, kwargs=self.kwargs)
        self._recording = Recording()
        self._units = UnitMeasuring(data, self.known, self.timer, cuts=self.group.size == 1)

    def tuning(self) -> Tuning:
        """Measure and decide."""
        with self._call.undone(), _collector_is_quick():
            recorded = add_transform(self.compiled, transform=[self._recording])
            self._call.run(recorded)
            self._call.forget_unwritten()
            with without_autocast():
                all_measured = self._measure_units()
            outcome, all_compared = self._searched()
        self.entries = outcome.entries
        return Tuning(
            compiled=self._with(outcome.entries),
            entries=outcome.entries,
            default=outcome.default,
            tuned=outcome.tuned,
            why=outcome.why,
            skipped={**self._recording.skipped, **self._units.skipped},
            measured=self._units.measured,
            seconds=time.monotonic() - self._start,
            is_complete=all_measured and all_compared,
        )

    def _measure_units(self) -> bool:
        """Enter what is known or measured of each unit; return whether the time was enough."""
        units = sorted(self._recording.units.values(), key=lambda unit: -unit.weight)
        described = [(unit.key, unit.default, candidate_names(unit)) for unit in units]
        self.group.equal("devices", profile)
        self.group.equal("calls and regions", lambda: described)
        for unit in units:
            entry = slowest(self.group.all(partial(self._units.known, unit)))
            if entry is None:
                if self._is_over():
                    return False
                entry = slowest(self.group.all(partial(self._units.entry_of, unit)))
            for found in () if entry is None else (entry, *unit.parts):
                self.entries.add(found.chosen(found.baseline))
        return True

    def _searched(self) -> tuple[Outcome, bool]:
        """Return what the search decides, and whether the time was enough."""
        compare = ProgramComparison(self._call, self.timer, self._with, self._by_default, self.group)

        def compared(entries: Entries) -> Any:
            if self._is_over():
                raise _Over
            return compare(entries)

        units = self._recording.units
        changes = [
            change_of(entry, units[entry.kind, entry.key], self.entries)
            for entry in self.entries
            if entry.fastest != entry.baseline and (entry.kind, entry.key) in units
        ]
        try:
            return search(self.entries, changes, compared), True
        except _Over:
            told = [c.entry.chosen(c.entry.baseline, NOT_TRIED) for c in changes]
            why = "the time was over before the program was measured"
            return Outcome(Entries([*self.entries, *told]), why=why), False

    def _is_over(self) -> bool:
        return self.group.any(time.monotonic() - self._start > self.budget)

    def _by_default(self) -> Entries:
        return Entries(entry.chosen(entry.baseline) for entry in self.entries)

    def _with(self, entries: Entries) -> Any:
        return add_transform(self.compiled, transform=[UsePlacement(entries, "thunder.autotune")])


@contextmanager
def _collector_is_quick() -> Iterator[None]:
    """Within the context, the collector of cycles passes over the objects that are there now.

    It runs before each measurement, and goes over all objects of torch and the compiler else.
    """
    if gc.get_freeze_count():  # the program has done it
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
