"""What the preferences in force say about the regions of a fusion executor: parts, refusals, options."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from thunder.executor_base.executor import Executor
from thunder.executor_base.preferences import RegionPreference, preferences
from thunder.ir.aliasing import views_of
from thunder.ir.fusion_regions import Region

__all__ = ["cut_positions", "in_parts", "parts_of_region", "region_preference"]

_NOTHING = RegionPreference()


def region_preference(executor: Executor, region: Region) -> RegionPreference:
    """Return what is preferred for a region; nothing without preferences."""
    in_force = preferences()
    return (None if in_force is None else in_force.of_region(executor, region)) or _NOTHING


def in_parts(
    executor: Executor, regions: list[Region], is_compiled: Callable[[Region], bool]
) -> list[Region]:
    """Return regions with the parts of those that are cut in their place, in the order of the regions.

    Only regions that the executor would compile are cut.
    """
    if preferences() is None:
        return regions
    return [
        part
        for region in regions
        for part in parts_of_region(
            region, region_preference(executor, region).cuts if is_compiled(region) else ()
        )
    ]


def cut_positions(region: Region) -> list[int]:
    """Return the positions in a region's calls before which it can be cut.

    No view may cross them, since a region returns no view of its values. A region whose calls run after it
    as well is not cut.
    """
    views = {view.output.name for bsym in region.bsyms for view in views_of(bsym)}
    last = {p.name: i for i, bsym in enumerate(region.bsyms) for p in bsym.flat_proxy_args}
    crossed = {
        k
        for i, bsym in enumerate(region.bsyms)
        for p in bsym.flat_proxy_outs
        if p.name in views
        for k in range(i + 1, last.get(p.name, i) + 1)
    }
    count = 0 if region.repeated else len(region.bsyms)
    return [k for k in range(1, count) if k not in crossed]


def parts_of_region(region: Region, cuts: Sequence[int]) -> list[Region]:
    """Return the parts of a region that is cut before some of its calls, where that is possible.

    [t3] = f0(x)   →   [t1] = f0(x); [t3] = f1(x, t1)
    """
    found = sorted(set(cuts) & set(cut_positions(region)))
    if not found:
        return [region]
    parts: list[Region] = []
    for begin, end in pairwise([0, *found, len(region.bsyms)]):
        later = {p.name for bsym in region.bsyms[end:] for p in bsym.flat_proxy_args}
        parts.append(Region.of(region.bsyms[begin:end], later | {p.name for p in region.outputs}))
    return parts
