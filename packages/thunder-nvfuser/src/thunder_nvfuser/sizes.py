"""Regions with symbolic sizes: the numbers that a definition takes, and the strides of results by size.

A definition of such a region has no size in its text. It asks its inputs for theirs (`fd.ops.size`), and
takes other numbers, such as `i0 * i1`, as inputs that are computed in each call. So it serves all sizes for
which the facts of the program hold.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from thunder import TensorProxy
from thunder.core.pytree import tree_map
from thunder.core.symbol import BoundSymbol
from thunder.extend import EagerStrides, Region, SymbolicInt

__all__ = ["StridesBySize", "region_for_sizes", "without_sizes"]

#: sizes for which the strides of results are remembered
_REMEMBERED: Final = 64


def without_sizes(region: Region, inputs: Sequence[Any]) -> list[Any]:
    """Return the inputs of a run that are not symbolic sizes of the region."""
    return [x for p, x in zip(region.inputs, inputs, strict=True) if not isinstance(p, SymbolicInt)]


def region_for_sizes(region: Region, sizes: Mapping[str, int]) -> Region:
    """Return a region with numbers in the place of its symbolic sizes, which are no longer inputs."""

    def leaf(x: Any) -> Any:
        if isinstance(x, SymbolicInt):
            return x.for_values(sizes)
        if isinstance(x, slice):  # a leaf of pytrees
            return slice(leaf(x.start), leaf(x.stop), leaf(x.step))
        if isinstance(x, TensorProxy):
            return x.replace(shape=tuple(map(leaf, x.shape)), strides=None)
        return x

    def call(bsym: BoundSymbol) -> BoundSymbol:
        args, kwargs, output = tree_map(leaf, (bsym.args, bsym.kwargs, bsym.output))
        parts = tuple(map(call, bsym.subsymbols))
        return bsym.from_bsym(args=args, kwargs=kwargs, output=output, subsymbols=parts)

    return replace(
        region,
        inputs=tuple(leaf(p) for p in region.inputs if not isinstance(p, SymbolicInt)),
        outputs=tuple(map(leaf, region.outputs)),
        bsyms=tuple(map(call, region.bsyms)),
    )


class StridesBySize:
    """Gives the results of a region eager's strides, for each combination of sizes."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self._known: OrderedDict[tuple[int, ...], EagerStrides] = OrderedDict()

    def apply(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs with eager's strides: those that have others are copied."""
        sizes = _sizes(self._region, inputs)
        key = tuple(sizes.values())
        strides = self._known.get(key)
        if strides is None:
            region = region_for_sizes(self._region, sizes) if sizes else self._region
            strides = self._known[key] = EagerStrides(region)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return strides.apply(outputs, without_sizes(self._region, inputs))

    def lengths(self, asked: Iterable[SymbolicInt], inputs: Sequence[Any]) -> list[int]:
        """Return the numbers that a definition takes after its other inputs."""
        sizes = _sizes(self._region, inputs)
        return [length.for_values(sizes) for length in asked]


def _sizes(region: Region, inputs: Sequence[Any]) -> dict[str, int]:
    """Return the sizes of a run by name."""
    pairs = zip(region.inputs, inputs, strict=True)
    return {p.name: x for p, x in pairs if isinstance(p, SymbolicInt)}
