"""A linear layer as explicit quantisations and products, forward and backward, for each recipe.

For x `(m, k)`, w `(n, k)` and the cotangent g `(m, n)`, with Q the rounding to 8 bits:

    y = Q(x) @ Q(w).T + bias      dx = Q(g) @ Q(w)      dw = Q(g).T @ Q(x)      dbias = sum of g over rows

Where a scale belongs to a tensor, both products of an operand use the same Q. A scale of a block belongs to a
direction: the elements that share it are summed together, so that x and g are rounded twice. Under NVFP4 w is
stored twice too, since its products read rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

import thunder.torch as ltorch
from thunder.core.dtypes import to_torch_dtype

from .operators import Block, Operators
from .recipes import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    Recipe,
)

__all__ = ["Operand", "Scales", "operands", "product", "rows", "stored_layer"]


@dataclass(frozen=True)
class Operand:
    """A quantised matrix of a trace: its data, the inverses of its scales, and the block of a scale.

    One in four bits has the largest magnitude of the matrix too, f32 `(1,)`.
    """

    data: Any
    scale_inv: Any
    block: Block = None
    amax: Any = None


@dataclass(frozen=True)
class Scales:
    """The scales of delayed scaling: a tensor of many, and the place of the first of the layer's three."""

    tensor: Any
    first: int


#: role of a matrix → its place among a layer's three scales
_PLACES = {"x": 0, "w": 1, "g": 2}


def operands(
    ops: Operators, recipe: Recipe, role: str, matrix: Any, scales: Scales | None
) -> tuple[Operand, Operand]:
    """Quantise a matrix of a layer, `role` "x", "w" or "g", for its two products.

    They are y and dw for x, y and dx for w, and dx and dw for g.
    """
    if isinstance(recipe, NVFP4BlockScaling):
        return _four_bit_operands(ops, recipe, role, matrix)
    form: Any = recipe
    dtype: torch.dtype = form.fp8_format.backward if role == "g" else form.fp8_format.forward
    match recipe:
        case Float8CurrentScaling():
            operand = Operand(*_pair(ops.quantize(matrix, dtype, recipe.use_power_2_scales)))
            return operand, operand
        case DelayedScaling():
            assert scales is not None, "the checker refuses delayed scaling without scales"
            place = scales.first + _PLACES[role]
            data, scale_inv, _ = ops.quantize_by_scale(matrix, scales.tensor, place, dtype)
            operand = Operand(data, scale_inv)
            return operand, operand
        case Float8BlockScaling() | MXFP8BlockScaling():
            power_of_2 = not (isinstance(recipe, Float8BlockScaling) and recipe.use_f32_scales)
            blocks = _blocks(recipe, role)
            by_block = {
                block: Operand(*_pair(ops.quantize_blocks(matrix, dtype, block, power_of_2)), block)
                for block in dict.fromkeys(blocks)
            }
            return by_block[blocks[0]], by_block[blocks[1]]
    raise AssertionError(f"the checker refuses {type(recipe).__name__}")


def _four_bit_operands(
    ops: Operators, recipe: NVFP4BlockScaling, role: str, matrix: Any
) -> tuple[Operand, Operand]:
    """Quantise a matrix by rows and by columns; the gradient of the weight has both operands transformed.

    Cotangents are rounded stochastically, each of the two times with other numbers.
    """
    square = role == "w" and not recipe.disable_2d_quantization
    at_random = role == "g" and not recipe.disable_stochastic_rounding

    def operand(by_columns: bool) -> Operand:
        transform = by_columns and role != "w" and not recipe.disable_rht
        if at_random:
            parts = ops.quantize_four_bits_at_random(matrix, by_columns, transform)
        else:
            parts = ops.quantize_four_bits(matrix, by_columns, square, transform)
        data, scale_inv, amax = parts
        return Operand(data, scale_inv, None, amax)

    return operand(False), operand(True)


def stored_layer(ops: Operators, x: Any, q: Any, scale_inv: Any, bias: Any) -> Any:
    """Record the product of x `(*, k)`, rounded by its own amax, with a weight `(n, k)` that is stored."""
    operand = Operand(*_pair(ops.quantize(rows(x), torch.float8_e4m3fn, False)))
    y = product(ops, operand, Operand(q, scale_inv), bias, "NT", x)
    return y if x.ndim == 2 else ltorch.reshape(y, (*x.shape[:-1], q.shape[0]))


def _pair(results: Any) -> tuple[Any, Any]:
    data, scale_inv = results
    return data, scale_inv


def _blocks(recipe: Recipe, role: str) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the blocks of a matrix for its two products."""
    if isinstance(recipe, MXFP8BlockScaling):
        return ((1, 32), (32, 1))
    return ((128, 128), (128, 128)) if role == "w" else ((1, 128), (128, 1))


def product(ops: Operators, a: Operand, b: Operand, bias: Any, layout: str, like: Any) -> Any:
    """Record a product of operands, in the dtype of `like`."""
    dtype = to_torch_dtype(like.dtype)
    if a.amax is not None:  # both are stored so that rows are summed, in each layout
        return ops.gemm_four_bits(a.data, a.scale_inv, a.amax, b.data, b.scale_inv, b.amax, bias, dtype)
    return ops.gemm(a.data, a.scale_inv, b.data, b.scale_inv, bias, layout, (a.block, b.block), dtype)


def rows(x: Any) -> Any:
    """Return a tensor `(*, k)` as a matrix."""
    return x if x.ndim == 2 else ltorch.reshape(x, (-1, x.shape[-1]))
