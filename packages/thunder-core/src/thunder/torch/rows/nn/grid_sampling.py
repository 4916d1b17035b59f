"""Sampling at the points of a grid (Jaderberg et al., Spatial Transformer Networks, 2015).

Each point has, along each dimension, some *taps*: elements, with weights that depend on the distances of the
point. A sample is the sum over all combinations of the taps of the dimensions.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.torch.meta_by_torch import checked_by_torch
from thunder.torch.namespace import ltorch

_INDEX = torch.int64


@dataclass(frozen=True)
class Tap:
    """An element along one dimension, for each point of the grid.

    Its index ``(n, p)``, whether there is such an element, its weight (None is 1), and the derivative of the
    weight by the grid's coordinate (None is 0).
    """

    index: TensorProxy
    inside: TensorProxy
    weight: TensorProxy | None
    slope: TensorProxy | None


@dataclass(frozen=True)
class Corner:
    """A combination of taps: an index ``(n, p)`` into the flat space, and one tap a dimension.

    The last dimension comes first.
    """

    index: TensorProxy
    inside: TensorProxy
    taps: Sequence[Tap]

    def weight(self) -> TensorProxy | None:
        """The product of the taps' weights; None is 1."""
        return _product(tap.weight for tap in self.taps)

    def slope(self, dim: int) -> TensorProxy | None:
        """The derivative of the weight by the grid's coordinate ``dim``."""
        slope = self.taps[dim].slope
        if slope is None:
            return None
        return _product([slope, *(tap.weight for d, tap in enumerate(self.taps) if d != dim)])


def _product(factors: Any) -> TensorProxy | None:
    product = None
    for factor in factors:
        if factor is not None:
            product = factor if product is None else ltorch.mul(product, factor)
    return product


@checked_by_torch("torch.nn.functional.grid_sample")
def grid_sample(
    input: TensorProxy,
    grid: TensorProxy,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> TensorProxy:
    """``input: (n, c, *in)`` sampled at ``grid: (n, *out, d)`` → ``(n, c, *out)``.

    Coordinates are between -1 and 1, the last dimension's first.
    """
    samples = None
    for corner in corners(input.shape, grid, mode, padding_mode, bool(align_corners)):
        part = weighted(taken(input, corner), corner.weight())
        samples = part if samples is None else ltorch.add(samples, part)
    return ltorch.reshape(samples, (*input.shape[:2], *grid.shape[1:-1]))


def weighted(values: TensorProxy, weight: TensorProxy | None) -> TensorProxy:
    """Return ``values: (n, c, p)`` times ``weight: (n, p)``."""
    return values if weight is None else ltorch.mul(values, ltorch.unsqueeze(weight, 1))


def taken(input: TensorProxy, corner: Corner) -> TensorProxy:
    """Return the elements of a corner, ``(n, c, p)``, and 0 where there are none."""
    n, c, *space = input.shape
    index = ltorch.expand(ltorch.unsqueeze(corner.index, 1), (n, c, corner.index.shape[1]))
    elements = ltorch.gather(ltorch.reshape(input, (n, c, math.prod(space))), 2, index)
    return ltorch.where(ltorch.unsqueeze(corner.inside, 1), elements, 0)


def corners(
    shape: Sequence[int], grid: TensorProxy, mode: str, padding: str, align: bool
) -> Iterator[Corner]:
    """Return the combinations of taps of each point, for an input of ``shape``."""
    space = tuple(shape[2:])
    points = ltorch.reshape(grid, (grid.shape[0], math.prod(grid.shape[1:-1]), len(space)))
    by_dim = [
        _taps(ltorch.select(points, -1, d), size, mode, padding, align)
        for d, size in enumerate(reversed(space))
    ]
    for taps in itertools.product(*by_dim):
        index, stride, inside = taps[0].index, 1, taps[0].inside
        for tap, size in zip(taps[1:], reversed(space[1:]), strict=True):
            stride *= size
            index = ltorch.add(index, ltorch.mul(tap.index, stride))
            inside = ltorch.logical_and(inside, tap.inside)
        yield Corner(index, inside, taps)


# -- one dimension ---------------------------------------------------------------------------------


def _taps(x: TensorProxy, size: int, mode: str, padding: str, align: bool) -> list[Tap]:
    """Return the taps along a dimension of the points with the coordinates ``x: (n, p)``."""
    scale = (size - 1) / 2 if align else size / 2
    position = ltorch.add(ltorch.mul(x, scale), (size - 1) / 2)
    if mode == "bicubic":  # pads the elements of a point, not the point
        return _cubic_taps(position, scale, size, padding, align)
    position, sign = _padded(position, size, padding, align)
    slope = ltorch.full_like(position, scale) if sign is None else ltorch.mul(sign, scale)
    if mode == "nearest":
        return [_tap(ltorch.round(position), size)]
    base = ltorch.floor(position)
    t = ltorch.sub(position, base)
    return [
        _tap(base, size, ltorch.sub(1, t), ltorch.neg(slope)),
        _tap(ltorch.add(base, 1), size, t, slope),
    ]


def _tap(
    position: TensorProxy, size: int, weight: TensorProxy | None = None, slope: TensorProxy | None = None
) -> Tap:
    position = ltorch.detach(position)
    inside = ltorch.logical_and(ltorch.ge(position, 0), ltorch.le(position, size - 1))
    index = ltorch.to(ltorch.where(inside, position, 0), dtype=_INDEX)
    return Tap(index, inside, weight, slope)


def _padded(
    position: TensorProxy, size: int, padding: str, align: bool
) -> tuple[TensorProxy, TensorProxy | None]:
    """Move positions into the input; return them, and the derivative 1, -1 or 0 (None is 1)."""
    if padding == "zeros":
        return position, None
    sign = None
    if padding == "reflection":
        position, sign = _reflected(position, 0 if align else -0.5, size - 1 if align else size)
    moves = ltorch.logical_and(ltorch.gt(position, 0), ltorch.lt(position, size - 1))
    moves = ltorch.to(moves, dtype=position.dtype.torch_dtype)
    return ltorch.clamp(position, 0, size - 1), moves if sign is None else ltorch.mul(sign, moves)


def _reflected(position: TensorProxy, low: float, span: float) -> tuple[TensorProxy, TensorProxy]:
    """Return positions reflected at ``low`` and ``low + span``, and the derivative, 1 or -1."""
    if span <= 0:
        return ltorch.mul(position, 0), ltorch.zeros_like(position)
    offset = ltorch.sub(position, low)
    distance = ltorch.abs(offset)
    flips = ltorch.floor(ltorch.div(distance, span))
    rest = ltorch.fmod(distance, span)
    even = ltorch.eq(ltorch.remainder(flips, 2), 0)
    reflected = ltorch.add(ltorch.where(even, rest, ltorch.sub(span, rest)), low)
    forward = ltorch.eq(even, ltorch.ge(offset, 0))
    return reflected, ltorch.sub(ltorch.mul(ltorch.to(forward, dtype=position.dtype.torch_dtype), 2), 1)


# -- cubic convolution -----------------------------------------------------------------------------

#: the parameter ``a`` of the kernel (Keys, Cubic Convolution Interpolation for Digital Image Processing,
#: 1981)
_A = -0.75
#: the kernel's polynomials, highest power first, at distances from 0 to 1 and from 1 to 2
_NEAR = (_A + 2, -(_A + 3), 0.0, 1.0)
_FAR = (_A, -5 * _A, 8 * _A, -4 * _A)


def _cubic_taps(position: TensorProxy, scale: float, size: int, padding: str, align: bool) -> list[Tap]:
    base = ltorch.floor(position)
    t = ltorch.sub(position, base)
    taps = []
    for k in (-1, 0, 1, 2):
        # the distance of tap k is k - t where it is after the point, else t - k
        distance = ltorch.sub(k, t) if k > 0 else ltorch.sub(t, k)
        polynomial = _NEAR if k in (0, 1) else _FAR
        slope = ltorch.mul(_polynomial(_derivative(polynomial), distance), -scale if k > 0 else scale)
        element, _ = _padded(ltorch.detach(ltorch.add(base, k)), size, padding, align)
        taps.append(_tap(element, size, _polynomial(polynomial, distance), slope))
    return taps


def _polynomial(coefficients: Sequence[float], x: TensorProxy) -> TensorProxy:
    """Evaluate a polynomial by Horner's rule."""
    first, second, *rest = coefficients
    value = ltorch.add(ltorch.mul(x, first), second)
    for coefficient in rest:
        value = ltorch.add(ltorch.mul(value, x), coefficient)
    return value


def _derivative(coefficients: Sequence[float]) -> tuple[float, ...]:
    degree = len(coefficients) - 1
    return tuple(c * (degree - i) for i, c in enumerate(coefficients[:-1]))
