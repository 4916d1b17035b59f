"""Elements at indices, with eager's errors for indices that are out of range.

Note [Indices that are out of range]
Eager's kernels raise an IndexError. Code by TorchInductor raises another class, or ends the process where the
loop has several threads. So a region clamps its indices, which reads foreign memory at no index, and computes
one bool more: whether an index was out of range. If it was, torch's kernels run the region, and raise.

    i = minimum(maximum(index, 0), n - 1)       outside = any((index < 0) | (index >= n))
    …  = table[i]                               return …, outside

The inputs must then be as they were: such a region writes to none, and computes in the memory of none.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch

from thunder import TensorProxy, dtypes
from thunder.core.entries import with_parts
from thunder.extend import Refusal, Region, SymbolicInt

from .torch_kernels import torch_function_of

__all__ = ["GATHERS", "CheckedIndices", "raising_as_eager", "reads_at_indices"]

_aten = torch.ops.aten


class CheckedIndices:
    """The indices of a region while its graph is recorded.

    Attributes:
        decompositions: operator → its decomposition, which reads at an index that is within its tensor.
    """

    def __init__(self) -> None:
        self._safe: list[torch.Tensor] = []
        self._outside: list[torch.Tensor] = []
        self.decompositions: Mapping[Any, Callable[..., Any]] = {
            _aten.embedding.default: self._embedding,
            _aten.index_select.default: self._index_select,
            _aten.gather.default: self._gather,
            _aten.index.Tensor: self._index,
        }

    def outside(self) -> torch.Tensor:
        """Return whether an index was out of range."""
        return functools.reduce(torch.logical_or, self._outside, torch.full((), False))

    def _embedding(self, weight: torch.Tensor, indices: torch.Tensor, *options: Any, **named: Any) -> Any:
        if self._is_safe(indices):
            return NotImplemented
        return _aten.embedding(weight, self._clamped(indices, weight.shape[0]), *options, **named)

    def _index_select(self, x: torch.Tensor, dim: int, index: torch.Tensor) -> Any:
        return _aten.index(x, [*[None] * (dim % x.ndim), self._clamped(index, x.shape[dim])])

    def _gather(self, x: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False) -> Any:
        if self._is_safe(index):
            return NotImplemented
        return _aten.gather(x, dim, self._clamped(index, x.shape[dim]))

    def _index(self, x: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> Any:
        if all(i is None or self._is_safe(i) for i in indices):
            return NotImplemented
        return _aten.index(
            x, [i if i is None else self._from_end(i, x.shape[d]) for d, i in enumerate(indices)]
        )

    def _is_safe(self, index: torch.Tensor) -> bool:
        """Return whether an index is one of those that this object has clamped."""
        return any(index is safe for safe in self._safe)

    def _from_end(self, index: torch.Tensor, size: int) -> torch.Tensor:
        """Return an index within a size, of which negative numbers count from the end."""
        return self._clamped(torch.where(index < 0, index + size, index), size)

    def _clamped(self, index: torch.Tensor, size: int) -> torch.Tensor:
        self._outside.append(((index < 0) | (index >= size)).any())
        self._safe.append(torch.clamp(index, 0, size - 1))
        return self._safe[-1]


# -- the calls


def _along(x: TensorProxy, index: TensorProxy, dim: int) -> Sequence[Any]:
    return x.shape[dim : dim + 1]


#: primitive → a function of its arguments that returns the sizes of what it indexes
_SIZES: Final[Mapping[str, Callable[..., Sequence[Any]]]] = {
    "prims.embedding": lambda indices, weight, **options: weight.shape[:1],
    "prims.index": lambda x, indices: [n for n, i in zip(x.shape, indices, strict=False) if i is not None],
    "prims.take": _along,
    "prims.gather": _along,
    "prims.take_along_axis": _along,
}
#: those of which torch's kernels take int64 only
_OF_INT64: Final = frozenset({"prims.gather", "prims.take_along_axis"})


def _checker(name: str) -> Callable[..., bool | Refusal]:
    def check(x: TensorProxy, *args: Any, **kwargs: Any) -> bool | Refusal:
        """Refuse indices that are not clamped, and those of devices whose kernels raise later."""
        if x.device.type != "cpu":
            return Refusal("device", "indices are checked on CPUs")
        if name in _OF_INT64 and args[0].dtype is not dtypes.int64:
            return Refusal("dtype", "torch's kernel takes int64", dtype=args[0].dtype)
        sizes = _SIZES[name](x, *args, **kwargs)
        if not sizes or any(isinstance(size, SymbolicInt) or size == 0 for size in sizes):
            return Refusal("size", "indices are clamped to known sizes that are not 0")
        return True

    return check


#: primitive that reads at indices → the checker of its calls
GATHERS: Final[Mapping[str, Callable[..., bool | Refusal]]] = {name: _checker(name) for name in _SIZES}


def reads_at_indices(region: Region) -> bool:
    """Return whether the code of a region returns, as its last result, whether an index is out of range."""
    return any(part.sym.id in GATHERS for part in with_parts(region.bsyms))


Run = Callable[[list[Any]], Sequence[torch.Tensor]]


def raising_as_eager(region: Region, run: Run) -> Run:
    """Return the function of a region's code, which raises what eager raises for an index out of range."""
    if not reads_at_indices(region):
        return run

    def checked(inputs: list[Any]) -> Sequence[torch.Tensor]:
        kept = list(inputs)
        *results, outside = run(inputs)
        return torch_function_of(region)(kept) if outside else results

    return checked
