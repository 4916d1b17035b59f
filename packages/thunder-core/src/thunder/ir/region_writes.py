"""The writes of a region to memory of its inputs, for regions that run on copies of some inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from thunder.base.tags import OpTags
from thunder.ir.aliasing import DisjointSets, shared_memory
from thunder.ir.effects import COPY, written_tensors
from thunder.ir.fusion_regions import Region
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx

__all__ = ["WrittenInput", "why_not_written_by_region", "writes_to_shared_inputs", "written_inputs"]


@dataclass(frozen=True)
class WrittenInput:
    """An input to whose memory a region writes.

    Attributes:
        name: of the input.
        is_read_later: whether its elements may be read after the region; not where the result of a call took
            its memory (Note [Memory that is reused]).
    """

    name: str
    is_read_later: bool


def why_not_written_by_region(bsym: BoundSymbol) -> str | None:
    """Return why a call that writes to tensors has to stay outside of regions, or None; so of other calls."""
    if OpTags.IN_PLACE not in bsym.all_tags:
        return None
    if OpTags.KEEPS_OVERWRITTEN in bsym.all_tags:
        return "it keeps what it overwrites, which is put back where a call raises"
    if bsym.sym.id == COPY:
        return "torch's autograd tracks the write" if bsym.kwargs["grad_enabled"] else None
    if getattr(bsym.sym.python_impl, "bases", None) is None:
        return "it is not known which tensors it writes"
    return None


def writes_to_shared_inputs(region: Region, trace: TraceCtx) -> Sequence[BoundSymbol]:
    """Return the calls that write to memory which several inputs of a region of this trace may have."""
    memory = shared_memory(trace.bound_symbols)
    for group in trace.input_aliases:
        for alias in group:
            memory.union(group[0].proxy.name, alias.proxy.name)
    counts = Counter(memory.find(p.name) for p in region.inputs)
    return [b for b in region.bsyms if any(counts[m] > 1 for m in _written(b, memory))]


def written_inputs(region: Region) -> Sequence[WrittenInput]:
    """Return the inputs of a region to whose memory it writes."""
    memory = shared_memory(region.bsyms)
    found: dict[str, bool] = {}
    for bsym in region.bsyms:
        written = _written(bsym, memory)
        stays = bsym.sym.id == COPY or not bsym.flat_proxy_outs
        for p in region.inputs:
            if memory.find(p.name) in written:
                found[p.name] = found.get(p.name, False) or stays
    return [WrittenInput(name, is_read_later) for name, is_read_later in found.items()]


def _written(bsym: BoundSymbol, memory: DisjointSets) -> set[str]:
    return {memory.find(p.name) for p in written_tensors(bsym)}
