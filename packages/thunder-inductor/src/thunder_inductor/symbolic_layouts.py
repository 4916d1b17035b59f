"""The strides of tensors in regions with symbolic sizes: numbers, and expressions of the sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from thunder import TensorProxy
from thunder.core.errors import UnsupportedProgram
from thunder.extend import EagerStrides, Region, SymbolicInt, sizes_in, strides_as_products

__all__ = [
    "Layout",
    "Layouts",
    "exact_layouts",
    "found_layouts",
    "input_layouts",
    "key_of",
    "layouts_for",
    "output_layouts",
    "tuple_text",
]

#: the strides (elements) of a tensor; () for a size
Layout = tuple[Any, ...]
Layouts = tuple[Layout, ...]


def input_layouts(region: Region, expected: Callable[[TensorProxy], Sequence[Any]]) -> Layouts:
    """Return the expected strides of the inputs."""
    return tuple(tuple(expected(p)) if isinstance(p, TensorProxy) else () for p in region.inputs)


def output_layouts(region: Region, inputs: Layouts) -> Layouts | None:
    """Return the strides that eager gives the outputs for inputs with these strides.

    None where torch needs the values of sizes, and for a call that cannot be run without data.
    """
    known = [s if isinstance(p, TensorProxy) else None for p, s in zip(region.inputs, inputs, strict=True)]
    try:
        return tuple(tuple(layout or ()) for layout in EagerStrides(region).derived(known))
    except UnsupportedProgram:
        return None


def found_layouts(region: Region, expected: Layouts, inputs: Sequence[Any]) -> Layouts:
    """Return the strides of the inputs of a run: those expected where they fit, else products or numbers.

    Strides that address nothing, those of dimensions with one element and of empty tensors, do not matter.
    """
    sizes = sizes_in(region, inputs)

    def found(p: Any, layout: Layout, x: Any) -> Layout:
        if not isinstance(x, torch.Tensor) or not x.numel():
            return layout
        as_expected = [
            n == 1 or step == (e.for_values(sizes) if isinstance(e, SymbolicInt) else e)
            for e, n, step in zip(layout, x.shape, x.stride(), strict=True)
        ]
        if all(as_expected):
            return layout
        products = strides_as_products(p.shape, x.shape, x.stride())
        return tuple(e if n == 1 else step for e, n, step in zip(layout, x.shape, products, strict=True))

    return tuple(found(p, *rest) for p, *rest in zip(region.inputs, expected, inputs, strict=True))


def exact_layouts(region: Region, inputs: Sequence[Any]) -> Layouts:
    """Return all strides of the inputs of a run, as products of its sizes or as numbers."""
    return tuple(
        strides_as_products(p.shape, x.shape, x.stride()) if isinstance(x, torch.Tensor) else ()
        for p, x in zip(region.inputs, inputs, strict=True)
    )


def layouts_for(layouts: Layouts, sizes: dict[str, int]) -> list[tuple[int, ...]]:
    """Return strides as numbers, for these values of the sizes by their names."""
    return [
        tuple(step.for_values(sizes) if isinstance(step, SymbolicInt) else step for step in layout)
        for layout in layouts
    ]


def is_size(number: SymbolicInt) -> bool:
    """Return whether an input of a region is the size of a tensor, and no number that may be negative."""
    return number.variable is not None and number.facts.is_size(number.variable)


def key_of(sizes: Sequence[SymbolicInt], layouts: Layouts) -> str:
    """Return the text of which symbols are sizes, and of strides, with symbols by their numbers."""
    numbers = {size.name: f"size{i}" for i, size in enumerate(sizes)}

    def text(step: Any) -> str:
        if not isinstance(step, SymbolicInt):
            return str(step)
        return step.polynomial.text(lambda v: numbers[step.facts.names[v]])

    return str((list(map(is_size, sizes)), [[text(step) for step in layout] for layout in layouts]))


def tuple_text(layout: Iterable[Any]) -> str:
    """Return the text of a tuple of strides, which Python computes from the sizes by name."""
    steps = [step.name if isinstance(step, SymbolicInt) else str(step) for step in layout]
    return f"({', '.join(steps)}{',' if len(steps) == 1 else ''})"
