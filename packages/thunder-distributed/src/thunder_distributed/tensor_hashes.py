"""Hashes of the values of tensors, which are cheap and computed where the tensors are."""

from __future__ import annotations

from collections.abc import Iterable

import torch

__all__ = ["hashes_of"]


def hashes_of(tensors: Iterable[torch.Tensor]) -> list[str]:
    """Return a text for the values of each tensor: the exclusive or of their bits, empty without values.

    Equal values have equal texts, in every process. Other values have other ones, but for the same values in
    another order: weights of another seed or file are found, and no equality is proved.
    """
    hashed = [_hash(t.detach()) for t in tensors]
    known = [h for h in hashed if h is not None]
    numbers = iter(torch.stack([h.cpu() for h in known]).tolist() if known else ())
    return ["" if h is None else f"0x{next(numbers):016x}" for h in hashed]


def _hash(t: torch.Tensor) -> torch.Tensor | None:
    if t.is_meta or not t.numel():
        return None
    bits = t.contiguous().view(-1).view(torch.uint8)
    missing = -bits.numel() % 8
    if missing or bits.data_ptr() % 8:
        bits = torch.cat([bits, bits.new_zeros(missing)])
    return torch.hash_tensor(bits.view(torch.int64))
