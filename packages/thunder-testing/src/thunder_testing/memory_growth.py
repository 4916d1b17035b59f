"""The memory that repeated runs of a call leave behind."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["bytes_per_run"]

#: runs before the first measurement, in which caches are filled
WARM_UP = 4

#: few and many runs between two measurements: what many leave behind beyond what few do, is of the runs.
#: A leak shows for each pair; a pool of objects that fills up, as Python and torch have them, for the first
RUNS = ((8, 40), (40, 400))

#: how often both are measured: a leak shows each time
MEASUREMENTS = 2

#: bytes of a run that are not counted: a list that grows allocates for later entries
SLACK = 48


def bytes_per_run(arguments: Callable[[], Any], run: Callable[[Any], Any]) -> int:
    """Return how many bytes of Python's memory each run leaves behind, the least of some measurements.

    `run` is called with new `arguments()` each time, which live as long as those of the other runs, so that
    their addresses differ. Objects of Python, tensors among them, and arrays of numpy are counted.
    """
    with _traced():
        _run(arguments, run, WARM_UP)
        least = 0
        for few, many in RUNS:
            least = _growth(arguments, run, few, many)
            if least <= SLACK:
                return 0
        return least


def _growth(arguments: Callable[[], Any], run: Callable[[Any], Any], few: int, many: int) -> int:
    """Return by how many bytes each run beyond `few` increases the memory, the least of some measurements."""
    growth: dict[int, list[int]] = {few: [], many: []}
    before = tracemalloc.get_traced_memory()[0]
    for times in (few, many) * MEASUREMENTS:
        after = _run(arguments, run, times)
        growth[times].append(after - before)
        before = after
    return (min(growth[many]) - max(growth[few])) // (many - few)


def _run(arguments: Callable[[], Any], run: Callable[[Any], Any], times: int) -> int:
    """Run some times; return the bytes of Python's memory afterwards."""
    given = [arguments() for _ in range(times)]
    for each in given:
        run(each)
    del given, each
    gc.collect()  # it also empties Python's lists of free objects, which count as allocated
    return tracemalloc.get_traced_memory()[0]


@contextmanager
def _traced() -> Iterator[None]:
    """Let Python count the bytes that it allocates.

    Garbage is collected only when that is asked for, among the objects that are made from here on. Where the
    caller has frozen objects, those of today stay frozen too: `gc.unfreeze` would take all.
    """
    was_tracing, was_collecting = tracemalloc.is_tracing(), gc.isenabled()
    is_frozen = gc.get_freeze_count() > 0
    gc.disable()
    gc.collect()
    gc.freeze()
    if not was_tracing:
        tracemalloc.start(1)
    try:
        yield
    finally:
        if not was_tracing:
            tracemalloc.stop()
        if not is_frozen:
            gc.unfreeze()
        if was_collecting:
            gc.enable()
