"""Numbers that a region reads and that differ from call to call, such as the step size of an optimizer.

    f0 = item(step); f1 = compute_number("truediv", 0.001, f0)      # numbers of the program
    t1 = torch.add(t0, f1)                                          # a call of a region

The code of a region takes tensors, so such a number is passed as a tensor without dimensions in float64. Its
product with a tensor in float32 is what eager computes: both round the number to float32 first. Operators
that take nothing but Python's numbers (`addcdiv(…, value=f1)`) are computed by their primitives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import torch

from thunder import FloatProxy, NumberProxy, TensorProxy, dtypes
from thunder.core.symbol import BoundSymbol
from thunder.extend import Region, SymbolicInt

__all__ = ["as_tensor", "is_number", "takes_number", "with_numbers_opened"]

#: primitives with the same results for a number and for a tensor without dimensions
_TAKING: Final = frozenset({"prims.add", "prims.sub", "prims.mul", "prims.div"})
#: dtypes to which eager rounds the number before it computes, as compiled code does
_DTYPES: Final = (dtypes.float32, dtypes.float64)


def is_number(value: object) -> bool:
    """Return whether a value of a region is a number that is known when it runs, and no size."""
    return isinstance(value, NumberProxy) and not isinstance(value, SymbolicInt)


def takes_number(bsym: BoundSymbol, *, is_whole: bool) -> bool:
    """Return whether a region may have a call with numbers; `is_whole` if it is not computed by its parts."""
    numbers = [p for p in bsym.flat_proxy_args if is_number(p)]
    tensors = [p for p in (*bsym.flat_proxy_args, *bsym.flat_proxy_outs) if isinstance(p, TensorProxy)]
    return (
        all(isinstance(p, FloatProxy) and not p.known_value() for p in numbers)
        and all(isinstance(p, TensorProxy) for p in bsym.flat_proxy_outs)
        and all(p.dtype in _DTYPES and p.device.type == "cpu" for p in tensors)
        and not any(isinstance(size, SymbolicInt) for p in tensors for size in p.shape)
        and (bsym.sym.id in _TAKING if is_whole else bool(bsym.subsymbols))
    )


def with_numbers_opened(region: Region) -> Region:
    """Return a region in which primitives alone read numbers."""
    return (
        replace(region, bsyms=tuple(_opened(region.bsyms))) if any(map(is_number, region.inputs)) else region
    )


def _opened(bsyms: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    for bsym in bsyms:
        if bsym.sym.id not in _TAKING and any(map(is_number, bsym.flat_proxy_args)):
            yield from _opened(bsym.subsymbols)
        else:
            yield bsym


def as_tensor(value: Any) -> torch.Tensor:
    """Return a number as the code of a region takes it."""
    return torch.tensor(value, dtype=torch.float64)
