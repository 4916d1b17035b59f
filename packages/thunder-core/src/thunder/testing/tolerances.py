"""Comparison of results with those of eager and with exact ones, within tolerances."""

from __future__ import annotations

import torch

__all__ = ["difference", "same_bits"]

#: a result may have this many times the error of eager's
SLACK = 4.0


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors have the same shape, dtype and values; nan equals nan."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.detach().resolve_conj().resolve_neg(), b.detach().resolve_conj().resolve_neg()
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


def difference(
    ours: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, rtol: float, atol: float
) -> str | None:
    """Return how a tensor is wrong, or None.

    An element is right if it equals eager's, or if its distance from the exact one is at most
    `atol + rtol * |exact|` plus four times that of eager's.
    """
    if ours.shape != exact.shape:
        return f"shape {tuple(ours.shape)}, not {tuple(exact.shape)}"
    wide = torch.complex128 if exact.is_complex() or ours.is_complex() else torch.float64
    x, y, z = (t.detach().resolve_conj().to(wide).cpu() for t in (ours, eager, exact))
    equal = (x == y) | (x == z) | (x.isnan() & (y.isnan() | z.isnan()))
    allowed = atol + rtol * z.abs() + SLACK * (y - z).abs().nan_to_num(0.0, 0.0, 0.0)
    wrong = ~(equal | ((x - z).abs() <= allowed))
    if not bool(wrong.any()):
        return None
    off = (x - z).abs().nan_to_num(float("inf")).masked_fill(~wrong, -1.0)
    worst = int(off.argmax())
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), x.shape)) if x.ndim else ()
    return (
        f"{int(wrong.sum())} of {x.numel()} elements differ; worst at {place}: "
        f"{x.flatten()[worst].item()!r} instead of {z.flatten()[worst].item()!r}"
    )
