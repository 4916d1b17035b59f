"""The strides that eager would give the results of a fusion region."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder.ir.fusion_regions import Region
from thunder.ir.proxies import TensorProxy
from thunder.ops.layouts import Layouts

__all__ = ["EagerStrides"]

Strides = tuple[int, ...]


class EagerStrides:
    """The strides of a region's outputs in eager, which depend on the strides of its inputs.

    A trace does not record the strides of inputs, so they are derived when the region runs: once for each
    combination of input strides, by running its calls on tensors without data. Not synchronised: two threads
    may derive the same strides twice.
    """

    def __init__(self, region: Region) -> None:
        self._region = region
        self._known: dict[tuple[Strides | None, ...], tuple[Strides | None, ...]] = {}

    def of(self, inputs: Sequence[Any]) -> tuple[Strides | None, ...]:
        """Return the strides (elements) of each output for these inputs; None for one that is not a tensor.

        Raises UnsupportedProgram for a call that cannot be run without data.
        """
        key = tuple(x.stride() if isinstance(x, torch.Tensor) else None for x in inputs)
        strides = self._known.get(key)
        if strides is None:
            strides = self._known[key] = self._derive(key)
        return strides

    def apply(self, outputs: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs with eager's strides: those that have others are copied."""
        return [
            _with_strides(output, strides) for output, strides in zip(outputs, self.of(inputs), strict=True)
        ]

    def _derive(self, key: Sequence[Strides | None]) -> tuple[Strides | None, ...]:
        inputs = [
            p.replace(strides=strides) if strides is not None else p
            for p, strides in zip(self._region.inputs, key, strict=True)
        ]
        layouts = Layouts((p for p in inputs if isinstance(p, TensorProxy)), self._region.bsyms)
        return tuple(layouts.strides(p) if isinstance(p, TensorProxy) else None for p in self._region.outputs)


def _with_strides(output: Any, strides: Strides | None) -> Any:
    if strides is None or output.stride() == strides:
        return output
    return output.new_empty_strided(output.shape, strides).copy_(output)
