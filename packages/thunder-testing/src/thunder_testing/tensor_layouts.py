"""Copies of tensors that keep storages: offsets, strides, expanded dimensions and shared memory."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["at_an_offset", "cast_storage", "copied", "expanded", "has_storage", "rebuilt", "scattered"]

#: (storage, dtype) → its image; tensors of one storage have images in one storage
Storages = dict[tuple[int, torch.dtype], torch.Tensor]


def has_storage(x: torch.Tensor) -> bool:
    """Return whether a tensor is a strided view of memory (not sparse, quantised or a subclass)."""
    return x.layout is torch.strided and not x.is_quantized and type(x) in (torch.Tensor, torch.nn.Parameter)


def rebuilt(
    x: torch.Tensor, change: Callable[[torch.Tensor], torch.Tensor], storages: Storages
) -> torch.Tensor:
    """Return the tensor in a changed copy of its storage, with its shape, strides and offset.

    `change` gets the whole storage as a tensor of one dimension and returns one of the same length in new
    memory. `storages` has the images of earlier calls.
    """
    x = x.detach()
    if not has_storage(x):
        return change(x)
    memory = x.untyped_storage()
    key = (memory._cdata, x.dtype)
    if key not in storages:
        storages[key] = change(torch.empty(0, dtype=x.dtype, device=x.device).set_(memory))
    image = storages[key]
    view = torch.empty(0, dtype=image.dtype, device=image.device)
    view.set_(image.untyped_storage(), x.storage_offset(), x.shape, x.stride())
    if x.is_conj():
        view = view.conj()
    return torch._neg_view(view) if x.is_neg() else view


def copied(x: torch.Tensor) -> torch.Tensor:
    """Return a copy in new memory."""
    return x.clone(memory_format=torch.preserve_format)


def cast_storage(dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the change to a floating-point dtype; complex tensors get that precision, others are copied."""
    wide = torch.complex128 if dtype is torch.float64 else torch.complex64

    def to(x: torch.Tensor) -> torch.Tensor:
        if x.is_complex():
            return x.to(wide, copy=True)
        return x.to(dtype, copy=True) if x.is_floating_point() else copied(x)

    return to


# -- other layouts of the same values ------------------------------------------------------------------------


def _room(shape: tuple[int, ...], like: torch.Tensor) -> torch.Tensor:
    """Return memory that is filled with NaN, or with zeros for integers, which may be used as indices."""
    fill = float("nan") if like.is_floating_point() or like.is_complex() else 0
    return torch.full(shape, fill, dtype=like.dtype, device=like.device)


def scattered(x: torch.Tensor) -> torch.Tensor:
    """Return a copy with stride 2 or more in each dimension, and the last two dimensions exchanged."""
    if x.ndim == 0 or x.is_sparse:
        return x
    room = _room((*x.mT.shape, 2) if x.ndim > 1 else (*x.shape, 2), x)
    place = room[..., 0].mT if x.ndim > 1 else room[..., 0]
    return place.copy_(x)


def at_an_offset(x: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy that begins at the fourth element of its storage."""
    if x.is_sparse:
        return x
    place = _room((x.numel() + 8,), x)[3 : 3 + x.numel()].view(x.shape)
    return place.copy_(x)


def expanded(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor of stride 0 in its first dimension, which repeats the first row of a copy."""
    if x.ndim == 0 or x.numel() == 0 or x.is_sparse:
        return x
    return x[:1].clone().expand(x.shape)
