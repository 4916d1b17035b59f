"""The values on which the candidates of a unit run: the program's, or made ones, and others of their kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from thunder.core.dtypes import to_torch_dtype
from thunder.core.proxies import TensorProxy
from thunder_autotune.units import Unit
from thunder_bisect.calls import copies_of

__all__ = ["Subject", "made_values", "varied"]

#: the seed of values that are made where a program's own are not known
_SEED = 0


class Subject:
    """A unit with the values on which its candidates run; what `measured` repeats.

    `values` are those of the program, or made if these are not known; `inputs` are those that it takes.
    """

    def __init__(self, unit: Unit, values: Mapping[str, Any]) -> None:
        self.unit = unit
        self.values = values
        self.inputs = tuple(values[p.name] for p in unit.inputs)
        #: the inputs in whose memory a region may compute, or to which a call writes, with copies
        self._changing = [(values[name], values[name].clone()) for name in unit.ending | unit.written]

    def run(self, fn: Callable[..., Any]) -> Any:
        """Run a candidate on the values."""
        return fn(*self.inputs)

    def restore(self) -> None:
        """Give the inputs that a candidate has written their values back."""
        for x, before in self._changing:
            x.copy_(before)


def made_values(unit: Unit) -> Mapping[str, Any]:
    """Return values for the inputs of a unit: normal numbers; zeros for integers, which may be indices."""
    generator = torch.Generator().manual_seed(_SEED)
    return {p.name: _made(p, generator) for p in unit.inputs}


def _made(p: TensorProxy, generator: torch.Generator) -> torch.Tensor:
    dtype = to_torch_dtype(p.dtype)
    if dtype.is_floating_point or dtype.is_complex:
        wide = torch.complex64 if dtype.is_complex else torch.float32
        values = torch.randn(tuple(p.shape), generator=generator, dtype=wide).to(dtype)
    elif dtype is torch.bool:
        values = torch.rand(tuple(p.shape), generator=generator) < 0.5
    else:
        values = torch.zeros(tuple(p.shape), dtype=dtype)
    values = values.to(str(p.device))
    if p.strides is None or not values.numel():
        return values
    strided = torch.empty_strided(tuple(p.shape), tuple(p.strides), dtype=dtype, device=values.device)
    return strided if 0 in p.strides else strided.copy_(values)


def varied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return other values of the same kind: numbers of floating point negated and in reverse order."""
    copies = copies_of(values)
    for name, x in copies.items():
        if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) and x.numel():
            if 0 not in x.stride():
                x.copy_(-x.flatten().flip(0).reshape(x.shape))
            copies[name] = x
    return copies
