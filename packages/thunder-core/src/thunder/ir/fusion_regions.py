"""Fusion regions: groups of calls that can run as one, at one place of the program.

    t0 = ltorch.sin(x)                        [t2] = myFusion0(x)
    t1 = ltorch.linalg.inv(y)        →        t1 = ltorch.linalg.inv(y)
    t2 = ltorch.cos(t0)                       t3 = ltorch.add(t1, t2)
    t3 = ltorch.add(t1, t2)

`partition` finds the regions of a trace, and `replace_regions` puts a call in the place of each.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from thunder.base.structural_ids import RELEASES, RETURN
from thunder.base.tags import OpTags
from thunder.ir.aliasing import views_of
from thunder.ir.effects import is_ordered
from thunder.ir.region_cuts import Cuts, parts_of
from thunder.ir.region_graph import RegionGraph
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx, with_bound_symbols
from thunder.ir.traced_sizes import tensor_bytes

__all__ = ["Bounds", "Horizontal", "Region", "partition", "replace_regions"]


@dataclass(frozen=True)
class Bounds:
    """Limits on the size of a region; None is unlimited.

    Attributes:
        operators: the most calls.
        values: the most inputs and outputs together.
        peak_bytes: the most bytes of inputs, outputs and values between them that are alive at a time.
    """

    operators: int | None = None
    values: int | None = None
    peak_bytes: int | None = None

    def allow(self, region: Region) -> bool:
        """Return whether a region is within the bounds."""
        return (
            (self.operators is None or len(region.bsyms) <= self.operators)
            and (self.values is None or len(region.inputs) + len(region.outputs) <= self.values)
            and (self.peak_bytes is None or region.peak_bytes <= self.peak_bytes)
        )


UNBOUNDED = Bounds()

_RAISING = (OpTags.RAISES_ON_DATA, OpTags.RAISES_BY_PARTS)

#: which groups that do not depend on each other are merged: none, all, or those that read the same tensor
Horizontal = bool | Literal["siblings"]

#: the most statements between siblings
_NEAR = 24


@dataclass(frozen=True, eq=False)
class Region:
    """Calls that run as one.

    Attributes:
        bsyms: the calls, in program order.
        inputs: the proxies that they read and do not compute, in the order of their first use.
        outputs: the proxies that they compute and other statements read, in program order.
        repeated: those of the calls that run after the region as well, because others read the views that
            they return.
        copied: outputs that the program copies to inputs of the region in the end, as pairs of positions
            in `outputs` and in `inputs`: the code writes them there (Note [Regions that write]).
        reused: outputs that are computed in the memory of inputs that nothing reads afterwards, as such pairs
            (Note [Inputs that end]).
    """

    bsyms: tuple[BoundSymbol, ...]
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]
    repeated: tuple[BoundSymbol, ...] = ()
    copied: tuple[tuple[int, int], ...] = ()
    reused: tuple[tuple[int, int], ...] = ()

    @property
    def bound_symbols(self) -> tuple[BoundSymbol, ...]:
        """The calls, by another name of `bsyms`."""
        return self.bsyms

    @staticmethod
    def of(
        bsyms: Iterable[BoundSymbol], read_elsewhere: Iterable[str], repeated: Iterable[BoundSymbol] = ()
    ) -> Region:
        """Return the region of these calls; `read_elsewhere` are the names that other statements read."""
        calls, needed = tuple(bsyms), set(read_elsewhere)
        inputs: dict[str, Any] = {}
        computed: dict[str, Any] = {}
        for call in calls:
            inputs.update({p.name: p for p in call.flat_proxy_args if p.name not in computed})
            # A call may return its argument, which it does not compute.
            computed.update({p.name: p for p in call.flat_proxy_outs if p.name not in inputs})
        outputs = [p for name, p in computed.items() if name in needed]
        return Region(calls, tuple(inputs.values()), tuple(outputs), tuple(repeated))

    @property
    def keeps_inputs(self) -> bool:
        """Whether the inputs stay as they are until the region has ended, because it may raise for values."""
        return any(has_tags(call, _RAISING) for call in self.bsyms)

    @property
    def peak_bytes(self) -> int:
        """The most bytes that are alive at a time while the calls run one by one, inputs included."""
        last = {p.name: i for i, call in enumerate(self.bsyms) for p in call.flat_proxy_args}
        alive = {p.name: tensor_bytes(p) for p in self.inputs}
        kept = {p.name for p in (*self.inputs, *self.outputs)}
        peak = sum(alive.values())
        for i, call in enumerate(self.bsyms):
            alive.update({p.name: tensor_bytes(p) for p in call.flat_proxy_outs if p.name not in alive})
            peak = max(peak, sum(alive.values()))
            alive = {name: size for name, size in alive.items() if name in kept or last.get(name, -1) > i}
        return peak


def partition(
    trace: TraceCtx,
    can_fuse: Callable[[BoundSymbol], bool],
    *,
    horizontal: Horizontal = False,
    bounds: Bounds = UNBOUNDED,
    cuts: Cuts | None = None,
    writes: bool = False,
) -> list[Region]:
    """Return the regions of a trace: calls that `can_fuse` accepts, grouped as far as possible.

    A region is convex: no statement outside of it depends on one of its calls while another of its calls
    depends on that statement. So it can run at one place. Regions are as large as they can be: no two of
    which one reads a value of the other can be merged within the `bounds`. Regions that do not depend on
    each other stay apart, unless `horizontal` is true, or `"siblings"` (Note [Siblings]). With `cuts`, long
    regions are then cut into parts.

    Calls with effects are in no region, and none moves across a write, a printed line or a change of mode.
    With ``writes`` those that write to tensors can be in a region, which has all calls in program order.
    See Note [Views leave a region]. The same trace has the same regions, in program order.
    """
    finder = _Finder(_without_releases(trace), can_fuse, bounds, cuts, writes)
    finder.merge_neighbours()
    if horizontal:
        if horizontal == "siblings":
            finder.merge_siblings()
        else:
            finder.merge_independent()
        finder.merge_neighbours()
    return finder.regions()


# Note [Siblings]
#
#     t0 = x.sin(); t1 = t0.exp(); t2 = t1 @ w; t3 = x.cos(); t4 = t3.exp()
#
# The calls before and after the product do not depend on each other. As one region, they read `x` once:
#
#     [t1, t4] = myFusion0(x); t2 = t1 @ w
#
# That holds only for a tensor with as many elements as either group computes. And `t4` lives longer, and so
# do values that an earlier group would release: so only groups with few statements between them are merged.
#
# Note [Views leave a region]
#
#     t0 = sin(x); t1 = t0.mT; t2 = t1 + 1; return t0, t1, t2
#
# The caller gets two tensors that share memory. Were the transposition compiled into a region,
# its result would have memory of its own. So a region returns no view of its inputs or values: the call of
# which it would be a result runs after the region, and in it as well if the region reads its result.
#
#     [t0, t2] = myFusion0(x); t1 = t0.mT; return t0, t1, t2


class _Finder:
    """Merges the statements of a program into regions."""

    def __init__(
        self,
        bsyms: Sequence[BoundSymbol],
        can_fuse: Callable[[BoundSymbol], bool],
        bounds: Bounds,
        cuts: Cuts | None,
        writes: bool,
    ) -> None:
        self.bsyms, self.bounds, self.cuts = bsyms, bounds, cuts
        self.graph = RegionGraph(bsyms)
        can_move = [not is_ordered(b) or (writes and OpTags.IN_PLACE in b.all_tags) for b in bsyms]
        self.fusible = [
            b.sym.id != RETURN and moves and bool(can_fuse(b))
            for b, moves in zip(bsyms, can_move, strict=True)
        ]
        self.readers: dict[str, list[int]] = {}
        for i, bsym in enumerate(bsyms):
            for p in bsym.flat_proxy_args:
                self.readers.setdefault(p.name, []).append(i)
        for _ in bsyms:
            self._merge_inputs(self.graph.add())

    def merge_neighbours(self) -> None:
        """Merge groups of which one reads a value of the other, until none can be merged."""
        while any([self._merge_inputs(self.graph.group_of(group)) for group in self.graph.groups()]):
            pass

    def _merge_inputs(self, group: int) -> bool:
        """Merge a group with groups that it reads from; return whether there are any."""
        merged = False
        for other in self.graph.inputs_of(group) if self.fusible[group] else ():
            if self.fusible[other] and self._can_merge(other, group):
                group, merged = self.graph.merge(other, group), True
        return merged

    def merge_independent(self) -> None:
        """Merge groups that do not depend on each other."""
        apart: list[int] = []
        for group in [group for group in self.graph.groups() if self.fusible[group]]:
            partner = next((other for other in apart if self._can_run_together(other, group)), None)
            if partner is None:
                apart.append(group)
            else:
                self.graph.merge(partner, group)

    def merge_siblings(self) -> None:
        """Merge groups near each other that read the same tensor, and do not depend on each other."""
        readers: defaultdict[str, list[int]] = defaultdict(list)  # tensor → statements, one of each group
        for group in [group for group in self.graph.groups() if self.fusible[group]]:
            tensors = self._tensors_read(group)
            near = {self.graph.group_of(i) for name in tensors for i in readers[name]}
            for sibling in sorted(near, reverse=True):
                if self._are_near(sibling, group) and self._can_run_together(sibling, group):
                    self.graph.merge(sibling, group)
                    break
            for name in tensors:
                readers[name].append(group)

    def _tensors_read(self, group: int) -> list[str]:
        """Return the inputs of a group that have as many elements as each value that it computes."""
        calls = [self.bsyms[i] for i in self.graph.members(group)]
        region = Region.of(calls, ())
        views = {view.output.name for call in calls for view in views_of(call)}
        computed = [p for call in calls for p in call.flat_proxy_outs if p.name not in views]
        size = max(map(tensor_bytes, computed), default=0)
        return [p.name for p in region.inputs if size and tensor_bytes(p) >= size]

    def _are_near(self, a: int, b: int) -> bool:
        first, second = self.graph.members(a), self.graph.members(b)
        return second[0] - first[-1] <= _NEAR

    def regions(self) -> list[Region]:
        """Return the groups of fusible statements as regions that have calls and are within the bounds."""
        groups = [self.graph.members(group) for group in self.graph.groups() if self.fusible[group]]
        parts = [part for members in groups for part in self._parts(members)]
        found = [self._region(part) for part in sorted(parts, key=lambda part: part[0])]
        return [region for region in found if region.bsyms and self.bounds.allow(region)]

    def _parts(self, members: Sequence[int]) -> Iterator[Sequence[int]]:
        """Yield the parts of a group. They are convex, since the group is and they follow each other."""
        if self.cuts is None:
            yield members
            return
        start = 0
        for part in parts_of([self.bsyms[i] for i in members], self.cuts):
            yield members[start : start + len(part)]
            start += len(part)

    def _can_merge(self, a: int, b: int) -> bool:
        if not self.graph.can_merge(a, b):
            return False
        if self.bounds == UNBOUNDED:
            return True
        members = sorted((*self.graph.members(a), *self.graph.members(b)))
        return self.bounds.allow(self._region(members))

    def _can_run_together(self, a: int, b: int) -> bool:
        return not self.graph.depends(a, b) and not self.graph.depends(b, a) and self._can_merge(a, b)

    def _region(self, members: Sequence[int]) -> Region:
        """Return the region of these statements, without views that leave it."""
        inside = set(members)
        needed = {
            p.name
            for i in members
            for p in self.bsyms[i].flat_proxy_outs
            if any(reader not in inside for reader in self.readers.get(p.name, ()))
        }
        kept: list[BoundSymbol] = []
        repeated: list[BoundSymbol] = []
        read: set[str] = set()  # by the calls in `kept`
        for call in (self.bsyms[i] for i in reversed(members)):
            if any(view.output.name in needed for view in views_of(call)):
                needed.update(p.name for p in call.flat_proxy_args)
                if read.isdisjoint(p.name for p in call.flat_proxy_outs):
                    continue
                repeated.append(call)
            kept.append(call)
            read.update(p.name for p in call.flat_proxy_args)
        for call in repeated:  # a call may return its argument, which it does not compute
            arguments = {p.name for p in call.flat_proxy_args}
            needed -= {p.name for p in call.flat_proxy_outs} - arguments
        return Region.of(reversed(kept), needed, reversed(repeated))


def _without_releases(trace: TraceCtx) -> list[BoundSymbol]:
    return [bsym for bsym in trace.bound_symbols if bsym.sym.id not in RELEASES]


def replace_regions(
    trace: TraceCtx,
    regions: Sequence[Region],
    replacement: Callable[[Region], BoundSymbol | None],
    provenance: str = "Fusion",
) -> TraceCtx:
    """Return the trace with the calls of each region replaced by one: trace → trace.

    `replacement` returns the bound symbol that computes the region's outputs from its inputs, or None if the
    calls stay as they are. It is called in program order. Statements move only as far as the regions need,
    but regions whose outputs are copied to inputs come late: what may raise, or read the inputs, is before.
    ``del`` lines are dropped, since other values end elsewhere now; `del_last_used` adds them.
    """
    start = time.perf_counter_ns()
    bsyms = _without_releases(trace)
    calls = [(region, call) for region in regions if (call := replacement(region)) is not None]
    graph = RegionGraph(bsyms)
    region_of = {bsym: region for region, call in calls for bsym in region.bsyms}
    group_of: dict[Region, int] = {}
    for bsym in bsyms:
        group = graph.add()
        region = region_of.get(bsym)
        if region is not None:
            group_of[region] = graph.merge(group_of[region], group) if region in group_of else group
    replaced = {group_of[region]: [call, *region.repeated] for region, call in calls}
    late = {group_of[region] for region, _ in calls if region.copied}
    statements = [b for group in graph.in_order(late) for b in replaced.get(group, (bsyms[group],))]
    return with_bound_symbols(trace, statements, provenance, time.perf_counter_ns() - start)
