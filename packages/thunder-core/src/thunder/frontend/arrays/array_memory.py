"""NumPy's arrays as memory: what guards compare of them, copies, and which of them overlap."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.memory_layout import byte_span
from thunder.frontend.natives.libraries import numpy

__all__ = [
    "ArrayContent",
    "ArrayLayout",
    "are_apart",
    "copied",
    "fill",
    "is_array",
    "is_plain_array",
    "new_like",
    "overlap",
]

#: bytes of the largest array whose content a guard holds; of a larger one it holds a digest
_LARGEST_HELD = 1 << 20


def is_array(x: Any) -> bool:
    """Return whether ``x`` is an array of NumPy's own class."""
    return type(x).__name__ == "ndarray" and is_array_class(type(x))


def is_array_class(cls: type) -> bool:
    """Return whether a class is NumPy's own class of arrays."""
    module = numpy() if cls.__name__ == "ndarray" else None
    return module is not None and cls is module.ndarray


def is_plain_array(x: Any) -> bool:
    """Return whether ``x`` is such an array whose elements are numbers, truth values, texts or dates."""
    return is_array(x) and not x.dtype.hasobject and x.dtype.fields is None


@dataclass(frozen=True, eq=False)
class ArrayLayout:
    """The metadata of an array; ``strides`` are bytes."""

    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    is_writeable: bool

    @classmethod
    def of(cls, array: Any) -> ArrayLayout:
        """Return the metadata of an array."""
        return cls(array.dtype, array.shape, array.strides, array.flags.writeable)

    def holds(self, x: Any) -> bool:
        """Return whether ``x`` is an array with this metadata."""
        return (
            is_array(x)
            and x.dtype == self.dtype
            and x.shape == self.shape
            and x.strides == self.strides
            and x.flags.writeable == self.is_writeable
        )

    def found(self, x: Any) -> str:
        """Return what ``x`` has instead, in words."""
        return f"{x.dtype}{list(x.shape)}" if is_array(x) else type(x).__name__


@dataclass(frozen=True, eq=False)
class ArrayContent:
    """The elements of an array in the order of its indices, bit by bit; of a large array, a digest."""

    data: bytes

    @classmethod
    def of(cls, array: Any) -> ArrayContent:
        """Return the content of an array."""
        return cls(_summary(array))

    def holds(self, x: Any) -> bool:
        """Return whether an array, whose layout is checked before, has this content."""
        return _summary(x) == self.data

    def found(self, x: Any) -> str:
        """Return that there is other content, in words."""
        return "other elements"


def _summary(array: Any) -> bytes:
    data: bytes = array.tobytes()
    return data if len(data) <= _LARGEST_HELD else hashlib.blake2b(data).digest()


def new_like(array: Any) -> Any:
    """Return an array with the dtype, shape and strides of another one, in memory of its own, not filled."""
    module: Any = numpy()
    low, high = _offsets(array)
    memory = module.empty(high - low, dtype="u1")
    return module.ndarray(array.shape, array.dtype, buffer=memory, offset=-low, strides=array.strides)


def copied(array: Any) -> Any:
    """Return a copy of an array with its strides."""
    copy = new_like(array)
    fill(copy, array)
    return copy


def fill(target: Any, values: Any) -> None:
    """Write the elements of an array to one of its layout, which is writeable afterwards if that is."""
    target.flags.writeable = True
    target[...] = values
    target.flags.writeable = values.flags.writeable


def _offsets(array: Any) -> tuple[int, int]:
    """Return the offsets (bytes) from an array's first element to its lowest byte and past its highest."""
    if array.size == 0:
        return 0, array.itemsize
    reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + array.itemsize


def _span(value: Any) -> tuple[int, int]:
    """Return the addresses of the first byte of an array or tensor and past its last, or (0, 0)."""
    if isinstance(value, torch.Tensor):
        start, end = byte_span(value)
        return (value.data_ptr(), value.data_ptr() + end - start) if end > start else (0, 0)
    if value.size == 0:
        return 0, 0
    first = value.__array_interface__["data"][0]
    low, high = _offsets(value)
    return first + low, first + high


def overlap(a: Any, b: Any) -> bool:
    """Return whether the spans of two arrays or tensors overlap in memory."""
    (first, past_first), (second, past_second) = _span(a), _span(b)
    return first < past_second and second < past_first


def are_apart(array: Any, *others: Any) -> bool:
    """Return whether an array shares memory with none of the other arrays and tensors."""
    return not any(overlap(array, other) for other in others)
