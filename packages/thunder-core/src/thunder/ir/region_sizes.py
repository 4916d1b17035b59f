"""The symbolic sizes of a fusion region, which the code of the region takes as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from thunder.ir.fusion_regions import Region
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_sizes import SymbolicInt

__all__ = ["SymbolicInt", "sizes_of", "with_sizes"]


def sizes_of(region: Region) -> tuple[SymbolicInt, ...]:
    """Return the symbolic sizes of the program's inputs on which a region depends.

    In the order of their first occurrence in the shapes of the inputs, then in the calls: regions of equal
    structure (`structural_key`) have corresponding sizes at equal places.
    """
    found: dict[str, SymbolicInt] = {}
    for size in _sizes(region.inputs):
        found.update({root.name: root for root in size.roots if root.name not in found})
    for call in region.bsyms:
        for size in _sizes((*call.flat_proxy_args, *call.flat_proxy_outs)):
            found.update({root.name: root for root in size.roots if root.name not in found})
    return tuple(found.values())


def _sizes(proxies: Iterable[Any]) -> Iterator[SymbolicInt]:
    for p in proxies:
        for size in p.shape if isinstance(p, TensorProxy) else (p,):
            if isinstance(size, SymbolicInt):
                yield size


def with_sizes(region: Region) -> Region:
    """Return a region whose last inputs are its symbolic sizes: a region without any as it is."""
    sizes = sizes_of(region)
    if not sizes:
        return region
    names = {size.name for size in sizes}
    values = tuple(p for p in region.inputs if p.name not in names)
    return replace(region, inputs=(*values, *sizes))
