"""The kernels of a region for inputs of certain strides, with the tensors that they allocate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from thunder.extend import EagerStrides, Region

from .blocks import Blocks
from .building import nodes_of
from .elementwise import held
from .kernel_text import KernelSource, source_of
from .kernel_writer import Buffer
from .nodes import Load, Node, View
from .schedule import schedule

__all__ = ["Allocation", "FusionProgram", "contiguous_strides", "program_of"]

Strides = tuple[int, ...]

#: the most elements between the first and the last of a tensor whose offsets fit into 32 bits
_NARROW = 2**31 - 2**20


@dataclass(frozen=True)
class Allocation:
    """A tensor that a fusion allocates: a result, or a value between two kernels."""

    name: str
    shape: tuple[int, ...]
    strides: Strides
    dtype: torch.dtype


@dataclass(frozen=True)
class FusionProgram:
    """The steps of a fusion, which allocates tensors, launches kernels and returns results.

    Attributes:
        inputs: the names of the inputs, in order.
        allocations: the tensors that it allocates.
        kernels: in the order in which they are launched.
        results: the names of what it returns.
    """

    inputs: tuple[str, ...]
    allocations: tuple[Allocation, ...]
    kernels: tuple[KernelSource, ...]
    results: tuple[str, ...]

    @property
    def text(self) -> str:
        """The source of the kernels."""
        return "\n\n".join(kernel.text for kernel in self.kernels)


def program_of(
    region: Region,
    strides: Sequence[Strides],
    name: str,
    *,
    interpreted: bool,
    blocks: Sequence[Blocks] | None = None,
) -> FusionProgram:
    """Return the program of a region whose inputs have these strides (elements).

    `blocks` are the block sizes of its kernels, by default those of the heuristic. Raises Unsupported for a
    call for which no kernel is generated.
    """
    loads, computed = nodes_of(region)
    outputs = _with_own_memory(computed)
    kernels = schedule(outputs)
    names = _Names()
    inputs: dict[Node, Buffer] = {
        load: Buffer(names.new(load.name), tuple(layout), load.dtype)
        for load, layout in zip(loads, strides, strict=True)
    }
    layouts = EagerStrides(region).of([_without_data(p, s) for p, s in zip(loads, strides, strict=True)])
    allocations = {
        node: Allocation(names.new(p.name), node.shape, tuple(layout or ()), node.dtype)
        for p, node, layout in zip(region.outputs, outputs, layouts, strict=True)
    }
    results = tuple(allocations[node].name for node in outputs)
    for node in (node for kernel in kernels for node in kernel.stored if node not in allocations):
        new = names.new(node.name or "partial")
        allocations[node] = Allocation(new, node.shape, contiguous_strides(node.shape), held(node.dtype))
    buffers: dict[Node, Buffer] = {
        **inputs,
        **{node: Buffer(a.name, a.strides, a.dtype) for node, a in allocations.items()},
    }
    places = [(load.shape, buffer.strides) for load, buffer in inputs.items()]
    places += [(a.shape, a.strides) for a in allocations.values()]
    wide = any(_extent(shape, layout) > _NARROW for shape, layout in places)
    wide = wide or any(kernel.space.rows * kernel.space.length > _NARROW for kernel in kernels)
    launched = [(i, kernel) for i, kernel in enumerate(kernels) if kernel.space.rows]
    choice: Sequence[Blocks | None] = blocks or [None] * len(launched)
    sources = tuple(
        source_of(
            kernel,
            f"{name}_{i}" if len(kernels) > 1 else name,
            buffers,
            interpreted=interpreted,
            wide=wide,
            blocks=chosen,
        )
        for (i, kernel), chosen in zip(launched, choice, strict=True)
    )
    return FusionProgram(
        tuple(buffer.name for buffer in inputs.values()), tuple(allocations.values()), sources, results
    )


def _with_own_memory(outputs: Sequence[Node]) -> list[Node]:
    """Return outputs as different nodes, none of which is an input: each is stored in its own memory."""
    separate: dict[Node, None] = {}
    for node in outputs:
        if isinstance(node, Load) or node in separate:
            node = View(arg=node, source=lambda index: index, shape=node.shape, dtype=node.dtype)
        separate[node] = None
    return list(separate)


def _without_data(load: Load, strides: Strides) -> torch.Tensor:
    return torch.empty_strided(load.shape, strides, dtype=load.dtype, device="meta")


def contiguous_strides(shape: Sequence[int]) -> Strides:
    """Return the strides (elements) of a contiguous tensor."""
    return tuple(math.prod(shape[d + 1 :]) for d in range(len(shape)))


def _extent(shape: Sequence[int], strides: Strides) -> int:
    """Return the distance (elements) between the first and the last element, or their number if larger."""
    distance = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    return max(distance, math.prod(shape))


class _Names:
    """Names of buffers, each given once."""

    def __init__(self) -> None:
        self._used: set[str] = set()

    def new(self, name: str) -> str:
        """Return this name, or one with a number if it is in use."""
        new, count = name, 1
        while new in self._used:
            new, count = f"{name}_{count}", count + 1
        self._used.add(new)
        return new
