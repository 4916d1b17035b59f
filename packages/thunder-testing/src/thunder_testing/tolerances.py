"""Tolerances of results by dtype, and the places where a tensor exceeds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

__all__ = ["LOW_PRECISION", "TOLERANCES", "Judge", "Reference", "same_bits"]

#: relative and absolute tolerance of results and gradients by dtype, in addition to eager's own error
TOLERANCES: Mapping[torch.dtype, tuple[float, float]] = {
    torch.float64: (1e-10, 1e-10),
    torch.complex128: (1e-10, 1e-10),
    torch.float32: (1e-5, 1e-5),
    torch.complex64: (1e-5, 1e-5),
}

#: dtypes in which a result is computed in float32 and rounded once, to nearest
LOW_PRECISION = (torch.bfloat16, torch.float16)

#: a result may have this many times the error of the reference, computed in the same precision
SLACK = 4.0

#: exact results that are smaller than this part of the inputs may be errors of float64
NEGLIGIBLE = 2.0**-40

#: the share of results that may be rounded away from the nearest value, all of them towards zero
MAX_TRUNCATED = 0.25


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors have the same shape, dtype and values; nan equals nan."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    a, b = a.detach().resolve_conj().resolve_neg(), b.detach().resolve_conj().resolve_neg()
    return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())


@dataclass(frozen=True, kw_only=True, eq=False)
class Reference:
    """The right values of one tensor.

    `exact` is computed in float64 from the inputs as they are rounded, `single` in float32, `eager` in their
    own dtype. `is_eager` says that a program without the executor has the values `eager`, so that these are
    right too. `scale` is the largest finite magnitude among the inputs. `perturbed` computes exact values of
    inputs that are changed in their last bits.
    """

    exact: torch.Tensor
    eager: torch.Tensor
    single: torch.Tensor | None = None
    is_eager: bool = True
    is_elementwise: bool = False
    scale: float = 1.0
    perturbed: Callable[[], Sequence[torch.Tensor]] = list


@dataclass(frozen=True)
class Judge:
    """Tolerances: those of an author by dtype, else the bounds of this module; `factor` widens them."""

    tolerances: Mapping[torch.dtype, tuple[float, float]] = field(default_factory=dict)
    factor: float = 1.0

    def bound(self, dtype: torch.dtype) -> str:
        """Return the text of the bound for results of a dtype."""
        if dtype in LOW_PRECISION and dtype not in self.tolerances:
            return (
                f"half a unit in the last place of {str(dtype).removeprefix('torch.')}, around the value in "
                "float64 of the same inputs, and the error of float32"
            )
        rtol, atol = self._tolerance(dtype)
        return (
            f"relative {rtol * self.factor:g}, absolute {atol * self.factor:g}, and {SLACK:g} times the "
            "error of the reference"
        )

    def _tolerance(self, dtype: torch.dtype) -> tuple[float, float]:
        return self.tolerances.get(dtype, TOLERANCES.get(dtype, (0.0, 0.0)))

    def fault(self, ours: torch.Tensor, reference: Reference) -> str | None:
        """Return how a tensor is wrong, or None."""
        exact = reference.exact
        if ours.shape != exact.shape:
            return f"shape {tuple(ours.shape)}, not {tuple(exact.shape)}"
        is_low = ours.dtype in LOW_PRECISION and ours.dtype not in self.tolerances
        x, y, z = (_wide(t, ours) for t in (ours, reference.eager, exact))
        right = (x == z) | (x.isnan() & (y.isnan() | z.isnan()))
        if reference.is_eager or not is_low:
            right |= x == y
        if is_low:
            right |= x == _wide(z.to(ours.dtype), ours)
        allowed = (
            self._low_precision(ours, reference, y, z) if is_low else self._allowed(ours, reference, y, z)
        )
        wrong = ~(right | _is_near(x, z, allowed * self.factor))
        if bool(wrong.any()):
            wrong &= ~_is_near(x, z, (allowed + _sensitivity(reference, z)) * self.factor)
        if bool(wrong.any()):
            return _worst(x, z, wrong)
        if is_low and _is_truncated(ours, x, y, z):
            return "most results are rounded towards zero instead of to the nearest value: they are truncated"
        return _sign_of_zero(x, y, z) if reference.is_elementwise else None

    def _allowed(
        self, ours: torch.Tensor, reference: Reference, y: torch.Tensor, z: torch.Tensor
    ) -> torch.Tensor:
        """Return `atol + rtol * |exact|` plus a multiple of eager's error, for each element.

        The absolute tolerance is for values around 1: it is smaller for results that are all small, and
        larger for inputs that are large.
        """
        rtol, atol = self._tolerance(reference.eager.dtype)
        unit = 1.0 if reference.eager.dtype in self.tolerances else _unit(reference, z)
        return atol * unit + rtol * z.abs() + SLACK * (y - z).abs().nan_to_num(0.0, 0.0, 0.0)

    def _low_precision(
        self, ours: torch.Tensor, reference: Reference, y: torch.Tensor, z: torch.Tensor
    ) -> torch.Tensor:
        """Return the rounding of one result to nearest, and the error of a computation in float32.

        The error of rounding is half a unit in the last place (Higham, Accuracy and Stability of Numerical
        Algorithms, 2nd ed., 2.1). Where eager itself is less precise than that, its excess is allowed too.
        """
        info = torch.finfo(ours.dtype)
        _, exponent = torch.frexp(z.abs().nan_to_num(0.0, 0.0, 0.0))
        rounding = (
            torch.ldexp(torch.full_like(z.abs(), info.eps / 4), exponent) + info.smallest_normal * info.eps
        )
        rtol, atol = TOLERANCES[torch.float32]
        noise = atol * _unit(reference, z) + rtol * z.abs()
        if reference.single is not None:
            error = (_wide(reference.single, ours) - z).abs().nan_to_num(0.0, 0.0, 0.0)
            noise = noise + SLACK * (error if reference.single.dtype not in LOW_PRECISION else 0 * error)
        allowed = rounding + noise
        if reference.is_eager or reference.single is None:
            excess = ((y - z).abs() - allowed).nan_to_num(0.0, 0.0, 0.0).clamp(min=0)
            allowed = allowed + SLACK * excess.max() if excess.numel() else allowed
        return allowed


def _wide(x: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    wide = torch.complex128 if x.is_complex() or like.is_complex() else torch.float64
    return x.detach().resolve_conj().resolve_neg().to(wide).cpu()


def _unit(reference: Reference, z: torch.Tensor) -> float:
    """Return the magnitude to which absolute tolerances refer: 1, or that of results or inputs.

    Results that cancel to zero, or to a rounding error of float64, have no magnitude of their own.
    """
    largest, scale = _largest(z), min(1.0, reference.scale)
    if reference.scale > 1:
        return reference.scale
    if largest <= NEGLIGIBLE * scale and _is_cancelled(reference, z, largest):
        return max(scale, 1e-30)
    return min(1.0, max(largest, 1e-30))


def _is_cancelled(reference: Reference, z: torch.Tensor, largest: float) -> bool:
    """Return whether small exact results are rounding errors, and not small numbers."""
    changes = [_largest(_wide(t, z) - z) for t in reference.perturbed()] if largest else []
    return largest == 0 or not changes or max(changes) > largest / 4


def _largest(z: torch.Tensor) -> float:
    """Return the largest finite magnitude; 0 if there is none."""
    finite = z.abs().nan_to_num(0.0, 0.0, 0.0)
    return float(finite.max()) if finite.numel() else 0.0


def _is_near(x: torch.Tensor, z: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    return ((x - z).abs() <= allowed) & ~x.isinf() & ~z.isinf()


def _sensitivity(reference: Reference, z: torch.Tensor) -> torch.Tensor:
    """Return the error that any algorithm may have where results depend on the last bits of the inputs.

    It is a multiple of how much the exact result changes if each input is changed in its last bit (Higham,
    1.6: a bound of the forward error is the backward error times the condition number).
    """
    changes = [(_wide(t, z) - z).abs().nan_to_num(0.0, 0.0, 0.0) for t in reference.perturbed()]
    return 2 * SLACK * torch.stack(changes).amax(0) if changes else torch.zeros_like(z.abs())


def _worst(x: torch.Tensor, z: torch.Tensor, wrong: torch.Tensor) -> str:
    off = (x - z).abs().nan_to_num(float("inf")).masked_fill(~wrong, -1.0)
    worst = int(off.argmax())
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), x.shape)) if x.ndim else ()
    return (
        f"{int(wrong.sum())} of {x.numel()} elements differ; worst at {place}: "
        f"{_instead_of(x.flatten()[worst].item(), z.flatten()[worst].item())}"
    )


def _instead_of(found: complex, right: complex) -> str:
    """Return two numbers with seven digits, or with as many as tell them apart.

    The last digits of a sum in float64 depend on the processor.
    """
    texts = ((f"{found:.{digits}g}", f"{right:.{digits}g}") for digits in range(7, 18))
    shown = next((each for each in texts if each[0] != each[1]), (repr(found), repr(right)))
    return " instead of ".join(shown)


def _is_truncated(ours: torch.Tensor, x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> bool:
    """Return whether many results are not the nearest value, and all of these are nearer to zero.

    Rounding errors of intermediate results go both ways.
    """
    if x.is_complex() or bool((x == y).all()):
        return False
    finite = x.isfinite() & z.isfinite() & (x != z)
    missed = finite & (x != z.to(ours.dtype).to(x.dtype))
    count = int(missed.sum())
    if count < 8 or count < MAX_TRUNCATED * int(finite.sum()):
        return False
    return bool((x.abs() < z.abs())[missed].all())


def _sign_of_zero(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> str | None:
    """Return where a zero has another sign than the reference's, in its dtype and in float64."""
    if x.is_complex():
        return None
    zeros = (x == 0) & (y == 0) & (z == 0) & (y.signbit() == z.signbit())
    wrong = zeros & (x.signbit() != z.signbit())
    if not bool(wrong.any()):
        return None
    worst = int(wrong.flatten().int().argmax())
    return (
        f"{int(wrong.sum())} zeros have the other sign, the first at flat index {worst}: "
        f"{_instead_of(x.flatten()[worst].item(), z.flatten()[worst].item())}"
    )
