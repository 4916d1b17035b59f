"""The inputs of fusion regions in whose memory outputs are computed.

Note [Inputs that end]
A region reads a value of the program for the last time, and computes another one of its shape:

    [g, h] = myFusion1(a, b, c)     →     [g, h] = myFusion1_reuses(a, b, c)      # g in the memory of a
    del a, b, c                           del a, b, c

The code is compiled for it, if the region reads the value element by element only, so that it need not be
kept beside the output. Whether nobody else has the memory is known when the program is complete: until then
the code gets a copy (``ops/writing_regions``), and the pass that puts writes in place lets it have the input
itself (``passes/placed_writes/own_memory``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace

from thunder.base.tags import OpTags
from thunder.ir.fusion_regions import Region
from thunder.ir.proxies import TensorProxy
from thunder.ir.region_sizes import sizes_of
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_sizes import are_same
from thunder.ir.trace import TraceCtx

__all__ = ["have_same_elements", "is_pointwise", "with_reused"]


def is_pointwise(bsym: BoundSymbol) -> bool:
    """Return whether a call computes each element from the elements at the same place."""
    if OpTags.POINTWISE_OP in bsym.sym.tags:
        return True
    return bool(bsym.subsymbols) and not bsym.sym.is_prim and all(map(is_pointwise, bsym.subsymbols))


def have_same_elements(base: object, copy: object) -> bool:
    """Return whether two operands are tensors of the same dtype, device and shape."""
    if type(base) is not TensorProxy or type(copy) is not TensorProxy:
        return False
    return base.dtype is copy.dtype and base.device == copy.device and are_same(base.shape, copy.shape)


def with_reused(trace: TraceCtx, regions: Sequence[Region], private: Set[str]) -> list[Region]:
    """Return the regions of a trace with the outputs that are computed in the memory of inputs.

    ``private`` are the names of the values that are worth it, and whose memory nobody but the program has.
    """
    readers: dict[str, list[int]] = {}
    position: dict[BoundSymbol, int] = {}
    for i, bsym in enumerate(trace.bound_symbols):
        position[bsym] = i
        for p in bsym.flat_proxy_args:
            readers.setdefault(p.name, []).append(i)
    return [_with_reused(region, position, readers, private) for region in regions]


def _with_reused(
    region: Region,
    position: Mapping[BoundSymbol, int],
    readers: Mapping[str, Sequence[int]],
    private: Set[str],
) -> Region:
    if region.repeated or region.keeps_inputs or sizes_of(region):
        return region
    inside = {position[b] for b in region.bsyms}
    written = {target for _, target in region.copied}
    ending = {
        i: p
        for i, p in enumerate(region.inputs)
        if p.name in private and i not in written
        if all(reader in inside or reader < min(inside) for reader in readers[p.name])
        if all(_reads_by_element(b, p) for b in region.bsyms)
    }
    copied = {output for output, _ in region.copied}
    made = {p.name for b in region.bsyms if is_pointwise(b) for p in b.flat_proxy_outs}
    pairs: list[tuple[int, int]] = []
    for output, p in enumerate(region.outputs):
        found = (i for i, x in ending.items() if have_same_elements(x, p))
        if output not in copied and p.name in made and (target := next(found, None)) is not None:
            pairs.append((output, target))
            del ending[target]
    return replace(region, reused=tuple(pairs)) if pairs else region


def _reads_by_element(bsym: BoundSymbol, p: TensorProxy) -> bool:
    """Return whether a call that reads a value reads the element at the place of each that it computes."""
    if all(x.name != p.name for x in bsym.flat_proxy_args):
        return True
    return is_pointwise(bsym) and all(are_same(x.shape, p.shape) for x in bsym.flat_proxy_outs)
