"""The plan of CUDA graphs: which calls of a final trace become graphs, and why others do not.

    t0 = torch.sin(x)                        [t1] = CUDAGraph0(x)
    t1 = torch.mul(t0, w)            →       t2 = t1.item()
    t2 = t1.item()                           [t4] = CUDAGraph1(t1, y)
    t3 = torch.add(t1, y); t4 = torch.exp(t3)

The plan is made from the trace alone: no device is used.

Note [Writes in a graph]
A graph may write to memory: of a value of its own, or of an input. An input of the program that is written
is taken to be at the same place in most calls, as a cache or a buffer is, and the graph writes there; another
input is copied back. So that a copy is all that has the memory, a graph has at most one input in memory that
it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol, gather_tags
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx
from thunder.extend import (
    Refusal,
    Region,
    consists_of_views,
    partition,
    why_not_written_by_region,
    writes_to_shared_inputs,
)
from thunder_transforms.observing import STRUCTURE, branch_of

__all__ = ["CapturePlan", "RefusedCall", "plan_captures", "why_not_captured"]

#: operators that copy from memory of the host
_FROM_HOST = frozenset({"torch.tensor", "torch.as_tensor", "prims.tensor_from_sequence"})
#: tag of an operator → why it is not captured
_TAGS = {
    OpTags.DEVICE_SYNC_OP: "it waits for the device",
    OpTags.RANDOM_OP: "it draws random numbers",
    OpTags.CTX_MANAGER_ENTER_EXIT_OP: "it changes a mode",
    OpTags.FALLBACK: "its kernels are not known, and may wait for the device",
    OpTags.DONT_DCE: "it has an effect",
}


@dataclass(frozen=True)
class RefusedCall:
    """A call that is in no graph, with the reason; `place` is the user's line, `file:line`, or empty."""

    operator: str
    reason: str
    place: str


@dataclass(frozen=True)
class CapturePlan:
    """The graphs of one trace.

    Attributes:
        branch: ``"inference"``, ``"forward"`` or ``"backward"``.
        regions: the calls of each graph.
        refused: the other calls.
        first: the number of the first graph.
    """

    branch: str
    regions: tuple[Region, ...]
    refused: tuple[RefusedCall, ...]
    first: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the graphs, in the order of their regions."""
        return tuple(f"CUDAGraph{self.first + i}" for i in range(len(self.regions)))

    def __str__(self) -> str:
        lines = [f"{self.branch}: {len(self.regions)} graph{'' if len(self.regions) == 1 else 's'}"]
        for name, region in zip(self.names, self.regions, strict=True):
            lines.append(f"  {name}: {', '.join(b.sym.name for b in region.bsyms)}")
        lines += [f"  {r.operator}: {r.reason}{f'  ({r.place})' if r.place else ''}" for r in self.refused]
        return "\n".join(lines)


def plan_captures(
    trace: TraceCtx,
    device_type: str = "cuda",
    *,
    can_fuse: Callable[[BoundSymbol], bool | Refusal] = lambda bsym: True,
    min_operations: int = 2,
    first: int = 0,
) -> CapturePlan:
    """Return the graphs of a final trace: the largest groups of calls on one device that can run together.

    A view that leaves a group is taken after it, so that it shares memory as before.

    Args:
        device_type: the devices of which calls are captured.
        can_fuse: further calls are refused by it, as `CUDAGraphTransform.can_fuse` does.
        min_operations: groups with fewer calls, views not counted, are not captured.
        first: the number of the first graph.
    """
    computing = [b for b in trace.bound_symbols if b.sym.id not in STRUCTURE]
    reasons = {b: why_not_captured(b, device_type, can_fuse) for b in computing}
    overlapping = {alias.proxy.name for group in trace.input_aliases for alias in group}
    for b in computing:  # a call may read the memory of the others by one of them
        if not overlapping.isdisjoint(p.name for p in b.flat_proxy_args):
            reasons[b] = reasons[b] or "its argument shares memory with another input"
    regions = _regions(trace, reasons, min_operations)
    while shared := [b for region in regions for b in writes_to_shared_inputs(region, trace)]:
        reasons |= dict.fromkeys(shared, "it writes to memory of which the graph would copy two parts")
        regions = _regions(trace, reasons, min_operations)
    captured = {b for region in regions for b in region.bsyms}
    refused = [_refused(b, reasons[b]) for b in computing if b not in captured]
    return CapturePlan(branch_of(trace), tuple(regions), tuple(refused), first)


def _regions(trace: TraceCtx, reasons: Mapping[BoundSymbol, str | None], min_operations: int) -> list[Region]:
    devices = {d for b, reason in reasons.items() if reason is None for d in _devices(b)}
    found: list[Region] = []
    for device in sorted(devices):
        captured_there = partial(_is_captured, device, reasons)
        for region in partition(trace, captured_there, horizontal=True, writes=True):
            if sum(not consists_of_views(b) for b in region.bsyms) >= min_operations:
                found.append(region)
    return found


def _refused(bsym: BoundSymbol, reason: str | None) -> RefusedCall:
    if reason is None:
        too_few = "there are too few calls for a graph"
        reason = "its result shares memory with others" if consists_of_views(bsym) else too_few
    place = f"{bsym.source_filename}:{bsym.source_positions}" if bsym.source_filename is not None else ""
    return RefusedCall(bsym.sym.name, reason, place)


def _is_captured(device: str, reasons: Mapping[BoundSymbol, str | None], bsym: BoundSymbol) -> bool:
    return bsym in reasons and reasons[bsym] is None and _devices(bsym) == {device}


def why_not_captured(
    bsym: BoundSymbol,
    device_type: str = "cuda",
    can_fuse: Callable[[BoundSymbol], bool | Refusal] = lambda bsym: True,
) -> str | None:
    """Return why a call is not captured in a graph, or None if it can be."""
    proxies = (*bsym.flat_proxy_args, *bsym.flat_proxy_outs)
    tags = gather_tags(bsym)
    if OpTags.IN_PLACE in tags:
        reason = why_not_written_by_region(bsym)
        if reason is not None:
            return reason
        tags = tags - {OpTags.DONT_DCE}  # of a copy to an input
    for tag, reason in _TAGS.items():
        if tag in tags:
            return reason
    if not all(isinstance(p, TensorProxy) for p in proxies):
        return "it reads or computes a value that is not a tensor"
    if not all(isinstance(n, int) for p in proxies for n in p.shape):
        return "its tensors have sizes that differ from call to call"
    if not _FROM_HOST.isdisjoint(_ids(bsym)):
        return "it copies from memory of the host"
    devices = _devices(bsym)
    if not devices:
        return "it computes no tensor"
    elsewhere = sorted(d for d in devices if d.partition(":")[0] != device_type)
    if elsewhere:
        return f"it has a tensor on {elsewhere[0]}"
    if len(devices) > 1:
        return f"its tensors are on {' and '.join(sorted(devices))}"
    answer = can_fuse(bsym)
    if answer:
        return None
    return answer.message if isinstance(answer, Refusal) else "can_fuse refuses it"


def _devices(bsym: BoundSymbol) -> set[str]:
    proxies = (*bsym.flat_proxy_args, *bsym.flat_proxy_outs)
    return {p.device.device_str() for p in proxies if isinstance(p, TensorProxy)}


def _ids(bsym: BoundSymbol) -> Iterable[str]:
    yield bsym.sym.id
    for part in bsym.subsymbols:
        yield from _ids(part)
