"""The symbolic sizes of a fusion region, which the code of the region takes as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thunder.ir.fusion_regions import Region
from thunder.ir.proxies import TensorProxy
from thunder.ir.substitution import with_leaves
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.symbolic_sizes import SymbolicInt, strides_as_products

__all__ = [
    "SymbolicInt",
    "numbers_of",
    "region_for_sizes",
    "sizes_in",
    "sizes_of",
    "strides_as_products",
    "with_sizes",
    "without_sizes",
]


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


def sizes_in(region: Region, inputs: Sequence[Any]) -> dict[str, int]:
    """Return the symbolic sizes of a run by name."""
    pairs = zip(region.inputs, inputs, strict=True)
    return {p.name: x for p, x in pairs if isinstance(p, SymbolicInt)}


def numbers_of(shape: Iterable[Any], sizes: Mapping[str, int] | None = None) -> tuple[int, ...]:
    """Return the sizes of a shape, or strides, as numbers.

    With `sizes`, which `sizes_in` returns, they are those of a run; without, those of the call for which the
    program is compiled. No check of the entry depends on them.
    """
    return tuple(_number(n, sizes) if isinstance(n, SymbolicInt) else int(n) for n in shape)


def _number(size: SymbolicInt, sizes: Mapping[str, int] | None) -> int:
    return int(size.hint if sizes is None else size.for_values(sizes))


def without_sizes(region: Region, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of a run that are not symbolic sizes of the region."""
    return [x for p, x in zip(region.inputs, inputs, strict=True) if not isinstance(p, SymbolicInt)]


def region_for_sizes(region: Region, sizes: Mapping[str, int]) -> Region:
    """Return a region with numbers in the place of its symbolic sizes, which are no longer inputs."""

    def leaf(x: Any) -> Any:
        if isinstance(x, SymbolicNumber) and all(root.name in sizes for root in x.roots):
            return x.for_values(sizes)
        if isinstance(x, slice):  # a leaf of pytrees
            return slice(leaf(x.start), leaf(x.stop), leaf(x.step))
        if isinstance(x, TensorProxy):
            return x.replace(shape=tuple(map(leaf, x.shape)), strides=None)
        return x

    return replace(
        region,
        inputs=tuple(leaf(p) for p in region.inputs if not isinstance(p, SymbolicInt)),
        outputs=tuple(map(leaf, region.outputs)),
        bsyms=tuple(with_leaves(leaf, bsym) for bsym in region.bsyms),
    )
