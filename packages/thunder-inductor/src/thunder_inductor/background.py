"""Regions that torch's kernels run until another process has compiled their code.

Note [When code is swapped in]
`inductor_compile="background"` sends the regions of a trace to a process (`compile_process`) when the trace
is compiled, `"later"` when torch's kernels have taken as long for them as compiling takes. Until the answer
is there, a region is computed by torch's functions, call by call, with eager's numbers.

    def region(t0):                        # the first region of a trace
        if awaited: awaited.take()         # ← here, and at no other place, code is swapped in
        …  return version.run([t0])        # torch's kernels, later compiled code

One answer has the code of all regions that the trace lacked, so that within a call of a trace all of them
are computed in one way or all in the other. (Another thread that is within a call at this moment computes the
rest of it by code; so does a call of another program around it that has an equal region.) A forward and its
backward are two traces, each swapped at its own time: what a forward has saved are values that it has
computed, and a backward reads them, whichever kernels made them.

No thread is involved: the pipe of the process is looked at where code is awaited. So nothing hangs when the
interpreter ends, and a fork finds no lock that is held. A fork asks again, by a process of its own.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final

import torch

from thunder.core.errors import PluginError, PluginWarning
from thunder.extend import ArtefactCache, Region
from thunder.plugins import is_strict

from .compile_process import Answer, Request, surroundings
from .kept_code import CacheWith, InductorCode, KeptCode, code_of, load_region, open_cache
from .kernels import Strides, Version
from .process_of_compiler import Process
from .sent_regions import region_to
from .settings import Settings
from .torch_kernels import torch_function_of

__all__ = ["AwaitedCode", "awaited_regions", "wait_for_code"]

#: seconds in torch's kernels for each region of a trace, after which `"later"` compiles them: about what the
#: code generator and the C++ compiler need for one
SECONDS_FOR_A_REGION: Final = 0.5

_SO_FAR: Final = "torch's kernels, until code is compiled"


class _State:
    """The process, and what is awaited, in this process."""

    lock = threading.RLock()
    process: Process | None = None
    awaited: ClassVar[weakref.WeakSet[AwaitedCode]] = weakref.WeakSet()


def _forget_process() -> None:
    """Leave the process to the parent of a fork."""
    _State.lock = threading.RLock()
    if _State.process is not None:
        _State.process.forget()
    _State.process = None


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(after_in_child=_forget_process)


def _process() -> Process:
    """Return the process that compiles; start one if there is none, or if a compiler has ended it.

    Raises RuntimeError if it has ended without any answer.
    """
    process = _State.process
    if process is None or (process.has_ended and process.has_answered):
        process = _State.process = Process()
    if process.has_ended:
        raise RuntimeError("the process that compiles has ended before it answered")
    return process


class _Job:
    """Regions whose code is compiled together.

    Attributes:
        versions: for each region and the strides of its inputs, what torch's kernels run until there is code.
        spent: seconds that torch's kernels have taken for these regions.
        codes: what has arrived, a text for an error; None before.
        is_swapped: whether the versions have the code.
    """

    def __init__(self, settings: Settings, cache: ArtefactCache) -> None:
        self.versions: list[tuple[Region, tuple[Strides, ...], Version]] = []
        self.spent = 0.0
        self.codes: Sequence[InductorCode | str] | None = None
        self.is_swapped = False
        self._settings, self._cache = settings, cache
        self._surroundings = surroundings(cache.versions)
        self._asked: Process | None = None

    def add(self, region: Region, strides: tuple[Strides, ...]) -> Version:
        """Return a new version that torch's kernels run."""

        compute = torch_function_of(region)

        def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
            started = time.perf_counter()
            results = compute(tensors)
            self.spent += time.perf_counter() - started
            return results

        version = Version(region, None, run)
        version.state, version.job = _SO_FAR, self
        self.versions.append((region, strides, version))
        return version

    @property
    def is_open(self) -> bool:
        """Whether regions can be added."""
        return self._asked is None and self.codes is None

    @property
    def is_worth_it(self) -> bool:
        """Whether torch's kernels have taken as long as compiling takes."""
        return self.spent >= SECONDS_FOR_A_REGION * len(self.versions)

    def ask(self) -> None:
        """Send the regions to the process, unless it has them."""
        if self.codes is not None:
            return
        try:
            process = _process()
            if self._asked is process:
                return
            regions = tuple((region_to(region), strides) for region, strides, _ in self.versions)
            self._asked = process
            process.send(self, lambda number: Request(number, regions, self._settings, self._surroundings))
        except Exception as error:  # of any class: the process cannot start, or a setting cannot be pickled
            self.fail(f"nothing can be compiled in the background: {type(error).__name__}: {error}")

    def receive(self, answer: Answer) -> None:
        """Load the code of an answer; nothing runs it yet."""
        cache = CacheWith(self._cache.versions, answer.artefacts)
        self.codes = [_loaded(cache, code) for code in answer.codes]

    def fail(self, text: str) -> None:
        """Note that no code arrives."""
        self.codes = [text] * len(self.versions)

    def swap(self) -> list[str]:
        """Put the code into the versions; return the errors."""
        assert self.codes is not None, "nothing has arrived"
        self.is_swapped = True
        for (_, _, version), code in zip(self.versions, self.codes, strict=True):
            version.job = None
            if isinstance(code, str):
                version.state = f"torch's kernels: {code}"
            else:
                version.state = "code, compiled in the background"
                version.set_code(code)
        return [code for code in self.codes if isinstance(code, str)]


def _swap(jobs: Iterable[_Job]) -> None:
    """Put code into versions, then report errors: a PluginWarning for each text, if strict a PluginError."""
    errors = dict.fromkeys(text for job in jobs if not job.is_swapped for text in job.swap())
    if errors and is_strict():
        raise PluginError("; ".join(errors), hint="Without THUNDER_PLUGIN_STRICT=1 torch's kernels run.")
    for text in errors:
        warnings.warn(f"{text}; torch's kernels run", PluginWarning, stacklevel=4)


def _loaded(cache: ArtefactCache, kept: KeptCode | str) -> InductorCode | str:
    if isinstance(kept, str):
        return kept
    code = code_of(cache, kept)
    return "the library of a region does not load" if code is None else code


class AwaitedCode:
    """The code that the regions of a trace await. True while there is some.

    Args:
        settings: the options of the compile.
        waits: whether code is compiled only after torch's kernels have taken as long as that takes.
    """

    def __init__(self, settings: Settings, *, waits: bool) -> None:
        self._settings, self._waits = settings, waits
        self._cache = open_cache()
        self._jobs: list[_Job] = []
        _State.awaited.add(self)

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def version(self, region: Region, strides: tuple[Strides, ...]) -> Version:
        """Return the version of a region with these input strides: code on disk, or one that awaits code."""
        code = load_region(self._cache, region, strides, self._settings)
        if code is not None:
            return Version(region, code)
        job = next((job for job in self._jobs if job.is_open), None) or _Job(self._settings, self._cache)
        return job.add(region, strides)

    def note(self, version: Version) -> None:
        """Await the code of a version; another trace may have asked for it."""
        job = version.job
        if isinstance(job, _Job) and not job.is_swapped and job not in self._jobs:
            self._jobs.append(job)

    def start(self) -> None:
        """Ask for the code of the trace, after all its regions were noted."""
        if not self._waits:
            with _State.lock:
                for job in self._jobs:
                    job.ask()

    def take(self) -> None:
        """Put the code that has arrived into its versions; ask for what is worth compiling."""
        if _State.lock.acquire(blocking=False):  # else another thread does it
            try:
                arrived = self.arrived(asks_all=not self._waits)
            finally:
                _State.lock.release()
            _swap(arrived)

    def arrived(self, *, asks_all: bool) -> list[_Job]:
        """Return the jobs whose code is here, which are awaited no more; ask for that of others."""
        if _State.process is not None:
            _State.process.look()
        for job in self._jobs:
            if asks_all or job.is_worth_it:
                job.ask()
        arrived = [job for job in self._jobs if job.codes is not None]
        self._jobs = [job for job in self._jobs if job.codes is None]
        return arrived


def awaited_regions() -> int:
    """Return how many regions of the programs of this process torch's kernels run until there is code."""
    return sum(len(job.versions) for job in _awaited_jobs())


def _awaited_jobs() -> set[_Job]:
    return {job for awaited in _State.awaited for job in awaited._jobs if not job.is_swapped}


def wait_for_code(seconds: float | None = None) -> int:
    """Compile what is awaited, worth it or not, and return when it runs; for measurements and tests.

    Returns how many regions still await code after so many seconds; None waits as long as it takes. Raises
    PluginError for a region that fails under THUNDER_PLUGIN_STRICT=1. No program may be running.
    """
    end = None if seconds is None else time.monotonic() + seconds
    while True:
        with _State.lock:
            arrived = [job for awaited in _State.awaited for job in awaited.arrived(asks_all=True)]
        _swap(arrived)
        left = 1.0 if end is None else end - time.monotonic()
        if not _awaited_jobs() or left <= 0:
            return awaited_regions()
        with _State.lock:
            if _State.process is not None:
                _State.process.wait(min(left, 1.0))
