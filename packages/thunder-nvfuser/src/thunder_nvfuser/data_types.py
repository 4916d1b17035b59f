"""nvFuser's dtypes by name, and what it computes in."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

import torch

__all__ = ["DTYPES", "NUMBERS", "SEEDS", "DataType", "compute_dtype", "data_type", "names"]


def names(text: str) -> tuple[str, ...]:
    """Return the words of a text, as the names of a table."""
    return tuple(text.split())


class DataType(Enum):
    """The dtypes of `nvfuser_direct.DataType` that regions use, by the same names."""

    Double = torch.float64
    Float = torch.float32
    Half = torch.float16
    BFloat16 = torch.bfloat16
    Int = torch.int64
    Int32 = torch.int32
    Bool = torch.bool
    #: of seeds and offsets of random numbers alone
    UInt64 = torch.uint64

    def __repr__(self) -> str:
        return f"DataType.{self.name}"


#: torch's dtypes of seeds and offsets, which attention passes to its backward
SEEDS: Final = frozenset({torch.uint64})
#: torch's dtypes of the tensors that a region may read and compute
DTYPES: Final = frozenset(member.value for member in DataType) - SEEDS
#: the dtypes of Python's numbers
NUMBERS: Final[dict[type, torch.dtype]] = {bool: torch.bool, int: torch.int64, float: torch.float64}


def data_type(types: Any, dtype: torch.dtype) -> Any:
    """Return the member of `types`, the library's or the recorder's `DataType`, for a dtype."""
    return getattr(types, DataType(dtype).name)


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which nvFuser computes on operands of a dtype: float32 for those of 16 bits."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype
