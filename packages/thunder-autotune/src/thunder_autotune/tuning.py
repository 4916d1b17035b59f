"""`thunder.autotune`: measure the candidates of a program, and decide which executors run it."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import thunder
from thunder.core.dtypes import to_torch_dtype
from thunder.core.entries import CompileData
from thunder.core.errors import InvalidArgument
from thunder.core.pytree import tree_iter
from thunder.core.transforms import add_transform
from thunder.extend import get_always_executors
from thunder_autotune.candidates import Subject, candidate_names, candidates_of, made_values
from thunder_autotune.entries import Entries, Entry, Figure, time_text
from thunder_autotune.judging import faults_of, reference_of
from thunder_autotune.keys import call_key
from thunder_autotune.lock_files import read
from thunder_autotune.lock_writing import add_to
from thunder_autotune.placement import UsePlacement
from thunder_autotune.profiles import counted, profile, versions_of
from thunder_autotune.recording import Recording, Unit
from thunder_autotune.search import NOT_TRIED, Change, Outcome, search
from thunder_autotune.timing import Timer, WallTimer, figure_of
from thunder_bisect.slowness.runs import Call, warm

__all__ = ["Tuner", "Tuning", "autotune", "refuse_process_groups"]

#: how far results of the tuned program may be from those of the default one, relative to their norm
_DISTANCE: Mapping[torch.dtype, float] = {torch.float64: 1e-9, torch.float32: 1e-4}
_LOW_DISTANCE = 3e-2


class _Over(Exception):
    """The time for tuning is over."""


@dataclass(frozen=True, kw_only=True)
class Tuning:
    """What was measured and decided; `str()` is a table.

    Attributes:
        compiled: the program with the decisions, with the settings of the one that was tuned.
        entries: the decisions, with the figures.
        default: the time of the program without them, or None where it was not measured.
        tuned: the time of the program with them.
        why: why the program is as it was, or "".
        skipped: what was not measured, with the reasons.
        measured: how many units were measured now, and not before.
        seconds: how long it took.
        is_complete: whether the time was enough for everything.
    """

    compiled: Any
    entries: Entries
    default: Figure | None
    tuned: Figure | None
    why: str
    skipped: Mapping[str, str]
    measured: int
    seconds: float
    is_complete: bool

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add the entries to a lock file, which is made if there is none."""
        add_to(path, self.entries)

    def __str__(self) -> str:
        changed = sum(entry.executor != entry.default for entry in self.entries)
        lines = [
            f"{counted(len(self.entries), 'call')} and regions with several candidates, "
            f"{changed} not run as by default, in {self.seconds:.1f} s"
        ]
        if self.default is not None and self.tuned is not None:
            lines.append(
                f"program: {time_text(self.default.us)} by default, {time_text(self.tuned.us)} tuned"
            )
        lines += [f"as by default: {self.why}"] if self.why else []
        for entry in self.entries:
            name = f"region of {entry.calls}" if entry.kind == "region" else entry.key
            lines.append(f"  {entry.executor}: {name}\n    {entry.text()}")
            lines += [f"    {entry.reason}"] if entry.reason else []
        lines += [f"  not measured: {what}: {why}" for what, why in self.skipped.items()]
        lines += [] if self.is_complete else ["the time was over before everything was measured"]
        return "\n".join(lines)

    __repr__ = __str__


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
    InvalidArgument in a process group, whose processes would have to make equal decisions, and what the
    program raises.
    """
    refuse_process_groups()
    own = compiled if thunder.compile_data(compiled) is not None else thunder.jit(compiled)
    known = read(lock) if lock is not None and Path(lock).exists() else Entries()
    tuner = Tuner(own, args, kwargs, budget=budget_s, known=known, timer=timer or WallTimer())
    try:
        return tuner.tuning()
    finally:
        if lock is not None:
            add_to(lock, tuner.entries)


def refuse_process_groups() -> None:
    """Raise InvalidArgument in a process group of several processes."""
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1:
        raise InvalidArgument(
            "thunder.autotune was called in a process group, whose processes might decide differently",
            found={"processes": distributed.get_world_size()},
            hint="Tune in one process, and give all of them the lock file: placement='thunder.lock.toml'.",
        )


@dataclass
class Tuner:
    """One tuning: `entries` are what is decided so far."""

    compiled: Any
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    budget: float
    known: Entries
    timer: Timer
    entries: Entries = field(default_factory=Entries)
    measured: int = 0

    def __post_init__(self) -> None:
        self._start = time.monotonic()
        data = thunder.compile_data(self.compiled)
        assert data is not None, "it is a compiled object"
        self._data: CompileData = data
        self._call = Call(fn=data.fn, args=self.args, kwargs=self.kwargs)
        self._recording = Recording()
        self._versions = versions_of(data.executors_list)
        self._profile = profile()
        self._forms: list[Any] = []

    def tuning(self) -> Tuning:
        """Measure and decide."""
        is_complete = True
        with self._call.undone(), _collector_is_quick():
            recorded = add_transform(self.compiled, transform=[self._recording])
            self._call.run(recorded)
            self._call.forget_unwritten()
            try:
                self._measure_units()
            except _Over:
                is_complete = False
            outcome, was_in_time = self._searched()
        self.entries = outcome.entries
        del recorded
        return Tuning(
            compiled=self._with(outcome.entries),
            entries=outcome.entries,
            default=outcome.default,
            tuned=outcome.tuned,
            why=outcome.why,
            skipped=dict(self._recording.skipped),
            measured=self.measured,
            seconds=time.monotonic() - self._start,
            is_complete=is_complete and was_in_time,
        )

    def _check_time(self) -> None:
        if time.monotonic() - self._start > self.budget:
            raise _Over

    def _with(self, entries: Entries) -> Any:
        return add_transform(self.compiled, transform=[UsePlacement(entries, "thunder.autotune")])

    # -- units

    def _measure_units(self) -> None:
        units = sorted(self._recording.units.values(), key=lambda unit: -_weight(unit))
        with _without_autocast():  # which is in the calls already
            self._measure_each(units)

    def _measure_each(self, units: Iterable[Unit]) -> None:
        for unit in units:
            known = self.known.measured(unit.kind, unit.key, self._profile)
            if known is None or not self._is_known(known, unit):
                self._check_time()
                known = self._measured(unit)
            if known is not None:
                self.entries.add(known.chosen(known.baseline))

    def _is_known(self, entry: Entry, unit: Unit) -> bool:
        """Return whether an entry has all candidates of a unit, in their versions of now."""
        names = {*candidate_names(unit)}
        has_all = names <= {*entry.figures, *entry.refused}
        return has_all and entry.default == unit.default and not entry.is_stale(self._versions)

    def _measured(self, unit: Unit) -> Entry | None:
        """Measure the candidates of a unit; return None where there is one, or no reference."""
        candidates, refused = candidates_of(unit, self._data)
        names = [executor.name for executor in get_always_executors()]
        reference = reference_of(candidates, names)
        if reference is None or not unit.default:
            self._recording.skipped[unit.key] = "torch does not run it, so nothing says what is right"
            return None
        if len(candidates) < 2 and not refused:
            return None
        subject = Subject(unit, unit.values if unit.values is not None else made_values(unit))
        refused |= faults_of(subject, candidates, reference)
        right = {c.name: c.run for c in candidates if c.name not in refused}
        for run in right.values():
            subject.run(run)  # caches are warm, and what is compiled at the first call is compiled
        times = self.timer.unit(subject, right)
        self.measured += 1
        return Entry(
            kind=unit.kind,
            key=unit.key,
            executor=unit.default,
            default=unit.default,
            profile=self._profile,
            figures={name: figure_of(found) for name, found in times.items()},
            refused=refused,
            versions=_versions_of(self._versions, [*right, *refused]),
            calls=unit.description if unit.kind == "region" else "",
        )

    # -- the whole program

    def _searched(self) -> tuple[Outcome, bool]:
        changes = [self._change(entry) for entry in self.entries if entry.fastest != entry.baseline]
        try:
            return search(self.entries, changes, self._compared), True
        except _Over:
            told = [c.entry.chosen(c.entry.baseline, NOT_TRIED) for c in changes]
            why = "the time was over before the program was measured"
            return Outcome(Entries([*self.entries, *told]), why=why), False

    def _change(self, entry: Entry) -> Change:
        unit = self._recording.units[entry.kind, entry.key]
        calls: list[Entry] = []
        if entry.kind == "region" and entry.fastest in {other.name for other in unit.accepting}:
            keys = dict.fromkeys(key for key in map(call_key, unit.bsyms) if key is not None)
            for key in keys:
                found = self.entries.measured("call", key, self._profile)
                call = found or replace(entry, kind="call", key=key, figures={}, refused={}, calls="")
                calls.append(call.chosen(entry.fastest, f"in a region of {entry.calls}"))
        return Change(entry, len(unit.places), tuple(calls))

    def _compared(self, entries: Entries) -> tuple[Figure, Figure] | None:
        """Return the times of the program by default and with entries; None where the results differ."""
        self._check_time()
        default = self._default()
        tuned = self._with(entries)
        warm(self._call, tuned)
        if not self._agree(default, tuned):
            return None
        times = self.timer.program(self._call, {"default": default, "tuned": tuned})
        return figure_of(times["default"]), figure_of(times["tuned"])

    def _default(self) -> Any:
        if not self._forms:
            # also where the settings have a placement; what is wrong by default is not what is compared with
            form = self._with(Entries(entry.chosen(entry.baseline) for entry in self.entries))
            warm(self._call, form)
            self._forms.append(form)
        return self._forms[0]

    def _agree(self, default: Any, tuned: Any) -> bool:
        results = []
        for form in (default, tuned):
            torch.manual_seed(0)
            found = self._call.run(form)
            results.append([x.detach().clone() for x in tree_iter(found) if isinstance(x, torch.Tensor)])
            self._call.restore()
        return len(results[0]) == len(results[1]) and all(map(_is_near, *results))


@contextmanager
def _without_autocast() -> Iterator[None]:
    kinds = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    with ExitStack() as stack:
        for kind in kinds:
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


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


def _is_near(x: torch.Tensor, y: torch.Tensor) -> bool:
    if x.shape != y.shape or x.dtype != y.dtype:
        return False
    if not (x.is_floating_point() or x.is_complex()) or x.layout is not torch.strided:
        return True  # choices between values that rounding does not tell apart may differ
    distance = float((x - y).double().nan_to_num(0.0).norm()) if not x.is_complex() else float((x - y).norm())
    norm = float(x.double().nan_to_num(0.0, 0.0, 0.0).norm()) if not x.is_complex() else float(x.norm())
    return distance <= _DISTANCE.get(x.dtype, _LOW_DISTANCE) * max(norm, 1e-12)


def _weight(unit: Unit) -> float:
    """Return how many bytes the occurrences of a unit read and write: those with most are measured first."""
    elements = sum(p.numel() * to_torch_dtype(p.dtype).itemsize for p in (*unit.inputs, *unit.outputs))
    return float(elements) * max(len(unit.places), 1)


def _versions_of(versions: Mapping[str, str], names: Iterable[str]) -> dict[str, str]:
    return {name: versions[name] for name in ("thunder", "torch", *names) if name in versions}
