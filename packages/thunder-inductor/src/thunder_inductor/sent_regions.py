"""Regions as bytes, by which one process lets another compile them.

A pickle of what code depends on: the ids of operators, arguments, and the metadata of values. Source lines,
tags, and what else a trace has are left out.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from thunder import TensorProxy
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.extend import Region, sizes_of, structural_key, symbol_of

__all__ = ["can_be_sent", "region_from", "region_to"]


def can_be_sent(region: Region) -> bool:
    """Return whether another process can compile a region.

    Not so for a GPU, whose libraries it would load a second time, for symbolic sizes, whose conditions
    become facts of the program, for numbers, for writes, and for a constant without a complete text.
    """
    return (
        region.outputs[0].device.type == "cpu"
        and not sizes_of(region)
        and not region.copied
        and all(type(p) is TensorProxy for p in region.inputs)
        and structural_key(region) is not None
    )


def region_to(region: Region) -> bytes:
    """Return the bytes of a region that can be sent."""
    file = io.BytesIO()
    _Writer(file, protocol=pickle.HIGHEST_PROTOCOL).dump((region.bsyms, region.inputs, region.outputs))
    return file.getvalue()


def region_from(content: bytes) -> Region:
    """Return the region of bytes. Raises RegistrationError for an operator that the process does not have."""
    return Region(*pickle.loads(content))


class _Writer(pickle.Pickler):
    """Writes calls and tensors by what `structural_key` counts of them, and decompositions."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is TensorProxy:
            facts = (tuple(value.shape), value.dtype.torch_dtype, str(value.device), value.strides)
            return _tensor, (value.name, *facts, value.requires_grad)
        if isinstance(value, Symbol):
            return symbol_of, (value.id,)
        if type(value) is BoundSymbol:
            return BoundSymbol, (value.sym, value.args, value.kwargs, value.output, value.subsymbols)
        return NotImplemented


def _tensor(name: str, shape: Any, dtype: Any, device: str, strides: Any, requires_grad: bool) -> TensorProxy:
    return TensorProxy(
        name, shape=shape, dtype=dtype, device=device, strides=strides, requires_grad=requires_grad
    )
