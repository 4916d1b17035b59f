"""Released tensors: tensors of a module whose values were dropped after a transform overrode them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from thunder.base.errors import RequirementNotMet

_T = torch.Tensor
#: what may be read of a released tensor: its metadata
_PROPERTIES = (
    *("shape", "dtype", "device", "requires_grad", "is_leaf", "grad", "grad_fn", "ndim", "layout"),
    *("is_meta", "is_cuda", "is_cpu", "is_sparse", "is_quantized", "itemsize", "nbytes"),
)
_METHODS = (
    *("size", "dim", "ndimension", "numel", "nelement", "is_floating_point", "is_complex", "element_size"),
    *("storage_offset", "is_contiguous", "__len__", "__hash__", "requires_grad_"),
)
_METADATA = frozenset(
    (
        *(getattr(_T, name).__get__ for name in _PROPERTIES),
        *(getattr(_T, name) for name in _METHODS),
        *(getattr(_T, name).__set__ for name in ("data", "grad", "requires_grad")),
        torch._has_compatible_shallow_copy_type,
    )
)


class _Released(torch.Tensor):
    """A tensor with the metadata of the dropped one, of which values cannot be read."""

    _name: str
    _strides: tuple[int, ...]

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        first = next((x for x in (*args, *(kwargs or {}).values()) if isinstance(x, _Released)), None)
        raise _error(first._name if first is not None else "a tensor")

    def stride(self, dim: int | None = None) -> Any:
        """Return the strides of the dropped tensor."""
        return self._strides if dim is None else self._strides[dim]

    def detach(self) -> torch.Tensor:
        """Return the tensor itself, which has no values to share; state dicts of the module hold it."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            new = _without_values(self, self.dtype)
            is_parameter = isinstance(self, torch.nn.Parameter)
            copied = torch.nn.Parameter(new, self.requires_grad) if is_parameter else new
        _mark(copied, self._name, self._strides)
        memo[id(self)] = copied
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise _error(self._name)

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return f"<released tensor {self._name!r}: {tuple(self.shape)} {self.dtype}>"


class _ReleasedParameter(_Released, torch.nn.Parameter):
    """A released parameter."""


def release(tensor: torch.Tensor, name: str) -> None:
    """Drop the storage of a tensor, and keep its metadata.

    Reading values then raises RequirementNotMet with ``name``. Other tensors with the same storage keep it.
    """
    if is_released(tensor):
        return
    strides = tensor.stride()
    tensor.data = _without_values(tensor, tensor.dtype)
    tensor.grad = None
    _mark(tensor, name, strides)


def is_released(tensor: torch.Tensor) -> bool:
    """Return whether the storage of a tensor was dropped."""
    return isinstance(tensor, _Released)


def convert(tensor: torch.Tensor, fn: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """Convert the dtype of a released tensor as ``fn``, such as ``torch.Tensor.half``, does."""
    with torch._C.DisableTorchFunctionSubclass():
        like = fn(torch.zeros((), dtype=tensor.dtype, device=tensor.device))
        tensor.data = like.detach().expand(tensor.shape)


def _without_values(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of the same shape that has one element of memory."""
    return torch.zeros((), dtype=dtype, device=tensor.device).expand(tensor.shape)


def _mark(tensor: Any, name: str, strides: tuple[int, ...]) -> None:
    tensor.__class__ = _ReleasedParameter if isinstance(tensor, torch.nn.Parameter) else _Released
    tensor._name, tensor._strides = name, strides


def _error(name: str) -> RequirementNotMet:
    return RequirementNotMet(
        f"the values of {name!r} were released after a transform had overridden it",
        hint="The compiled module has the tensor in use; original_state_dict returns the original form.",
    )
