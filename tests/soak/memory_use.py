"""Memory of this process, as a soak compares it: objects that the collector knows, and resident bytes."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class MemoryUse:
    """Objects of the cyclic collector, and resident memory in MB; 0 where the system does not say."""

    objects: int
    resident: float

    @classmethod
    def now(cls) -> MemoryUse:
        """Measure, after a collection."""
        gc.collect()
        gc.collect()
        statistics = Path("/proc/self/statm")
        pages = int(statistics.read_text(encoding="utf-8").split()[1]) if statistics.exists() else 0
        return cls(len(gc.get_objects()), pages * 4096 / 1e6)


def assert_flat(before: MemoryUse, after: MemoryUse, *, objects: int, resident: float) -> None:
    """Fail if there are more objects, or MB, than these above what there was."""
    more, megabytes = after.objects - before.objects, after.resident - before.resident
    assert more <= objects, f"{more} objects were left ({before.objects} before)"
    assert megabytes <= resident, f"{megabytes:.0f} MB more are resident ({before.resident:.0f} before)"
