"""The outputs of fusion regions that a program copies to its inputs.

Note [Regions that write]
A program that writes to an input computes the next value, and copies it there in the end:

    [t2, t3] = myFusion0(p, g)          [t3] = myFusion0_in_place(p, g)
    …                                →  …
    copy_(t2, p)                        return t3
    return t3

The code of such a region writes `t2` to the memory of `p`. Whether that is right where the region runs is
not known before the program is complete: other statements may read the old elements, or raise. So the code
gets a copy of `p` unless the pass that puts writes in place (``passes/write_in_place``) takes its form
that writes to `p` itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from thunder.ir.effects import COPY
from thunder.ir.fusion_regions import Region
from thunder.ir.proxies import TensorProxy
from thunder.ir.region_sizes import sizes_of
from thunder.ir.trace import TraceCtx

__all__ = ["copied_to_inputs", "with_copied"]


def copied_to_inputs(trace: TraceCtx) -> dict[str, TensorProxy]:
    """Return the inputs that a program writes where gradients are off, by the names of the values.

    Not those that share memory with other inputs, and none of a value that is copied to several.
    """
    shared = {alias.proxy.name for group in trace.input_aliases for alias in group}
    inputs = {p.name for p in trace.args if isinstance(p, TensorProxy)} - shared
    copies = [b for b in trace.bound_symbols if b.sym.id == COPY]
    counts = Counter(p.name for b in copies for p in b.args)
    return {
        value.name: target
        for value, target in (b.args for b in copies if not b.kwargs["grad_enabled"])
        if target.name in inputs and counts[value.name] == counts[target.name] == 1
        if value.device == target.device
    }


def with_copied(region: Region, copied: Mapping[str, TensorProxy]) -> Region:
    """Return a region with those of its outputs that the program copies to inputs.

    One with symbolic sizes, with calls that run after it as well, or that may raise for values has none.
    """
    written = {i: copied[p.name] for i, p in enumerate(region.outputs) if p.name in copied}
    if not written or region.repeated or region.keeps_inputs or sizes_of(region):
        return region
    inputs = {p.name: p for p in (*region.inputs, *written.values())}
    positions = {name: i for i, name in enumerate(inputs)}
    return replace(
        region,
        inputs=tuple(inputs.values()),
        copied=tuple((i, positions[target.name]) for i, target in written.items()),
    )
