"""Gradients of resampling: linear maps, each with its transpose."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, formulas, vjp
from thunder.torch.gradients.backward_kernels import computed_by, kernel
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol
from thunder.torch.rows.nn import pool  # noqa: F401  (the rows)
from thunder.torch.rows.nn.grid_sampling import corners, taken, weighted

_F = "torch.nn.functional."


# -- interpolation -------------------------------------------------------------------------------------------

#: mode → name of the kernel, and whether it has ``align_corners``
_KERNELS = {
    "nearest": ("upsample_nearest{n}d", False),
    "nearest-exact": ("_upsample_nearest_exact{n}d", False),
    "linear": ("upsample_linear{n}d", True),
    "bilinear": ("upsample_bilinear{n}d", True),
    "bicubic": ("upsample_bicubic{n}d", True),
    "trilinear": ("upsample_trilinear{n}d", True),
}
_ANTIALIASED = {"bilinear": "_upsample_bilinear2d_aa", "bicubic": "_upsample_bicubic2d_aa"}


def _interpolate_backward(
    grad_output: torch.Tensor,
    shape: Sequence[int],
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    antialias: bool,
) -> torch.Tensor:
    n = len(shape) - 2
    aten, space = torch.ops.aten, list(grad_output.shape[2:])
    if mode == "area":
        return _area_backward(grad_output, shape)
    name, aligns = _KERNELS[mode]
    backward = getattr(aten, (_ANTIALIASED[mode] if antialias else name.format(n=n)) + "_backward").default
    # torch interpolates by the scales of the call, or by the ratios of the sizes.
    scales: Sequence[float | None] = [None] * n
    if scale_factor is not None and not recompute_scale_factor:
        scales = [scale_factor] * n if isinstance(scale_factor, (int, float)) else list(scale_factor)
    aligned = (bool(align_corners),) if aligns else ()
    return backward(grad_output, space, list(shape), *aligned, *scales)


def _area_backward(grad_output: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    """The mode ``area`` is adaptive average pooling."""
    single = len(shape) == 3
    g = grad_output.unsqueeze(-2) if single else grad_output
    like = g.new_empty((*shape[:-1], 1, shape[-1]) if single else shape)
    n = g.dim() - 2
    result = getattr(torch.ops.aten, f"_adaptive_avg_pool{n}d_backward").default(g, like)
    return result.squeeze(-2) if single else result


@torchsymbol(id="ltorch.interpolate_backward", prim=True, eager=_interpolate_backward)
def interpolate_backward(
    grad_output: TensorProxy,
    shape: Sequence[int],
    size: Any,
    scale_factor: Any,
    mode: str,
    align_corners: bool | None,
    recompute_scale_factor: bool | None,
    antialias: bool,
) -> TensorProxy:
    """The transpose of interpolation of an input of ``shape``."""
    return TensorProxy(like=grad_output, shape=tuple(shape))


def _how(c: VjpCall) -> tuple[Any, ...]:
    return (c.size, c.scale_factor, c.mode, c.align_corners, c.recompute_scale_factor, c.antialias)


formulas(f"{_F}interpolate", input=lambda c: interpolate_backward(c.g, tuple(c.input.shape), *_how(c)))
formulas("ltorch.interpolate_backward", grad_output=lambda c: ltorch.interpolate(c.g, *_how(c)))


# -- grids ---------------------------------------------------------------------------------------------------


@kernel("affine_grid_generator_backward", prim=True)
def affine_grid_generator_backward(
    grad: TensorProxy, size: Sequence[int], align_corners: bool
) -> TensorProxy:
    """The transpose of ``affine_grid``: ``(n, 2, 3)`` or ``(n, 3, 4)``."""
    n = len(size) - 2
    return TensorProxy(like=grad, shape=(size[0], n, n + 1))


formulas(
    f"{_F}affine_grid",
    theta=lambda c: affine_grid_generator_backward(c.g, list(c.size), bool(c.align_corners)),
)
formulas(
    "ltorch.affine_grid_generator_backward",
    grad=lambda c: ltorch.affine_grid(c.g, list(c.size), c.align_corners),
)


# -- sampling at points --------------------------------------------------------------------------------------

_MODES = ("bilinear", "nearest", "bicubic")
_PADDINGS = ("zeros", "border", "reflection")


def _grid_sample_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    grid: torch.Tensor,
    mode: str,
    padding_mode: str,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> Any:
    kernel = getattr(torch.ops.aten, f"grid_sampler_{input.dim() - 2}d_backward").default
    how = (_MODES.index(mode), _PADDINGS.index(padding_mode), align_corners)
    dx, dgrid = kernel(grad_output, input, grid, *how, output_mask)
    return dx if output_mask[0] else None, dgrid if output_mask[1] else None


@computed_by(_grid_sample_backward)
def grid_sample_backward(
    grad_output: TensorProxy,
    input: TensorProxy,
    grid: TensorProxy,
    mode: str,
    padding_mode: str,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[TensorProxy | None, TensorProxy | None]:
    """Gradients of the input and of the grid, sums over the corners.

    The terms are ``weight * g`` for the input, and ``slope * g * element`` for the grid.
    """
    n, c, *space = input.shape
    d = len(space)
    g = ltorch.reshape(grad_output, (n, c, math.prod(grad_output.shape[2:])))
    dx = ltorch.zeros_like(ltorch.reshape(input, (n, c, math.prod(space))))
    slopes: list[TensorProxy | None] = [None] * d
    for corner in corners(input.shape, grid, mode, padding_mode, align_corners):
        if output_mask[0]:
            part = ltorch.where(ltorch.unsqueeze(corner.inside, 1), weighted(g, corner.weight()), 0)
            index = ltorch.expand(ltorch.unsqueeze(corner.index, 1), part.shape)
            dx = ltorch.scatter_add(dx, 2, index, part)
        if output_mask[1]:
            along = ltorch.sum(ltorch.mul(g, taken(input, corner)), 1)
            for dim in range(d):
                slopes[dim] = _accumulated(slopes[dim], along, corner.slope(dim))
    dgrid = None
    if output_mask[1]:
        result = [ltorch.zeros_like(ltorch.select(g, 1, 0)) if s is None else s for s in slopes]
        dgrid = ltorch.reshape(ltorch.stack(result, -1), grid.shape)
    return ltorch.reshape(dx, input.shape) if output_mask[0] else None, dgrid


def _accumulated(
    total: TensorProxy | None, along: TensorProxy, slope: TensorProxy | None
) -> TensorProxy | None:
    if slope is None:
        return total
    part = ltorch.mul(along, slope)
    return part if total is None else ltorch.add(total, part)


@vjp(f"{_F}grid_sample")
def _of_grid_sample(c: VjpCall) -> dict[str, TensorProxy | None]:
    mask = [c.needs("input"), c.needs("grid")]
    how = (c.mode, c.padding_mode, bool(c.align_corners))
    dx, dgrid = grid_sample_backward(c.g, c.input, c.grid, *how, mask)
    return {"input": dx, "grid": dgrid}
