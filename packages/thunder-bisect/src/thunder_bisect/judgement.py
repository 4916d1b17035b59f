"""Whether a tensor differs from the reference by more than rounding explains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder_bisect.rounding import unit
from thunder_bisect.shadows import Shadows
from thunder_testing.tolerances import LOW_PRECISION, Judge, Reference

__all__ = ["Expected", "expected_of", "fault_of"]

#: relative errors of a result, in units of roundoff of its dtype, that need no explanation: functions such
#: as exp are computed to a few units in the last place
UNITS = 16
#: (relative, absolute) tolerance of dtypes whose results are as precise as their arithmetic
_TOLERANCES = {
    dtype: (UNITS * unit(dtype), float(torch.finfo(dtype).smallest_normal))
    for dtype in (torch.float32, torch.float64)
} | {
    wide: (UNITS * unit(dtype), float(torch.finfo(dtype).smallest_normal))
    for dtype, wide in ((torch.float32, torch.complex64), (torch.float64, torch.complex128))
}


@dataclass(frozen=True, eq=False)
class Expected:
    """The right values of one tensor: the reference's, and the other computations'.

    `others` are in the order of :data:`~thunder_bisect.shadows.SHADOWS`: exact, in float32, with drawn
    errors. `scale` is the largest magnitude among the inputs of the computation.
    """

    own: torch.Tensor
    others: Sequence[torch.Tensor]
    scale: float = 1.0

    @property
    def exact(self) -> torch.Tensor:
        """The values in float64."""
        return self.others[0]

    def worst_error(self) -> float:
        """Return the largest error of the reference, and of computations with drawn errors."""
        return max(
            (_largest(x.to(self.exact.dtype) - self.exact) for x in (self.own, *self.others[2:])), default=0.0
        )


def expected_of(x: torch.Tensor, shadows: Shadows, scale: float = 1.0) -> Expected:
    """Return the right values of a tensor that was computed within `shadows`."""
    with torch.utils._python_dispatch._disable_current_modes():
        return Expected(x.detach().clone(), [y.clone() for y in shadows.of(x.detach())], scale)


def fault_of(ours: Any, expected: Expected, factor: float = 1.0, *, whole: bool = False) -> str | None:
    """Return how a result differs by more than rounding explains, or None.

    `factor` widens what is allowed. With `whole`, twice the largest error anywhere in the tensor is allowed
    everywhere in it: the errors of a whole program are spread over its results.
    """
    own = expected.own
    if not isinstance(ours, torch.Tensor):
        return f"{ours!r} in place of a tensor"
    ours = ours.detach()
    if ours.shape != own.shape:
        return f"shape {tuple(ours.shape)}, not {tuple(own.shape)}"
    if ours.dtype != own.dtype:
        return f"dtype {ours.dtype}, not {own.dtype}"
    if not (own.is_floating_point() or own.is_complex()):
        return _discrete_fault(ours, expected)
    if own.layout is not torch.strided or not own.numel():
        return None
    return Judge(_TOLERANCES, factor).fault(ours, _reference(expected, whole))


def _reference(expected: Expected, whole: bool) -> Reference:
    exact = expected.exact
    low = expected.own.dtype in LOW_PRECISION

    def perturbed() -> Sequence[torch.Tensor]:
        # a judge allows eight times the changes that it is given
        spread = [exact + expected.worst_error() / 4] if whole else []
        return [*(x for x in expected.others[2:] if x.shape == exact.shape), *spread]

    return Reference(
        exact=exact,
        eager=expected.own,
        single=expected.others[1] if low else None,
        scale=expected.scale,
        perturbed=perturbed,
    )


def _discrete_fault(ours: torch.Tensor, expected: Expected) -> str | None:
    """Compare integers and truth values: each element is that of one of the computations."""
    wrong = ours != expected.own
    for other in expected.others:
        if other.shape == ours.shape:
            wrong &= ours != other
    if not bool(wrong.any()):
        return None
    first = int(wrong.flatten().int().argmax())
    found, right = ours.flatten()[first].item(), expected.own.flatten()[first].item()
    return f"{int(wrong.sum())} of {ours.numel()} elements differ; the first: {found!r} instead of {right!r}"


def _largest(x: torch.Tensor) -> float:
    finite = x.abs().nan_to_num(0.0, 0.0, 0.0)
    return float(finite.max()) if finite.numel() else 0.0
