"""The operators of quantised products, which each executor of this package registers for its own kernels.

    quantize(x, dtype, power_of_2) -> data, scale_inv              one scale, from the tensor itself
    quantize_by_scale(x, scales, index, dtype) -> data, scale_inv, amax   one scale, from earlier steps
    quantize_blocks(x, dtype, block, power_of_2) -> data, scale_inv       a scale for each block
    gemm(a, a_scale, b, b_scale, bias, layout, blocks, dtype) -> a @ b + bias
    quantize_four_bits(x, by_columns, square, transform) -> data, scale_inv, amax   NVFP4, two elements a byte
    quantize_four_bits_at_random(x, by_columns, transform) -> data, scale_inv, amax     rounded stochastically
    gemm_four_bits(a, a_scale, a_amax, b, b_scale, b_amax, bias, dtype) -> a @ b.T + bias

Data are tensors of an 8-bit dtype and inverse scales are float32, so that both are saved and freed like any
other value; those of blocks have the layout of the executor's library. `layout` has a letter for each operand
as it is stored: "NT" is `a @ b.T`, "NN" `a @ b` and "TN" `a.T @ b`. `blocks` has the block of each operand,
or None for one scale. Matrices in four bits are stored so that rows are summed: `by_columns` transposes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from thunder import TensorProxy
from thunder.core.dtypes import to_dtype
from thunder.core.errors import InvalidArgument
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags
from thunder.extend import OperatorExecutor

__all__ = ["BY_SCALE", "Block", "Kernels", "Operators", "register"]

#: the end of the name of the operator that rounds by a scale from earlier steps
BY_SCALE = "quantize_by_scale"

Block = tuple[int, int] | None


@dataclass(frozen=True)
class Kernels:
    """The functions that run the operators, with their signatures."""

    quantize: Callable[..., Any]
    quantize_by_scale: Callable[..., Any]
    quantize_blocks: Callable[..., Any]
    gemm: Callable[..., Any]
    quantize_four_bits: Callable[..., Any]
    quantize_four_bits_at_random: Callable[..., Any]
    gemm_four_bits: Callable[..., Any]
    #: (shape of a matrix in four bits, as it is stored) → shape of the scales
    four_bit_scales: Callable[..., tuple[int, ...]]
    #: (shape of a matrix, block) → shape and dtype of the inverse scales
    block_scales: Callable[..., tuple[tuple[int, ...], torch.dtype]]


@dataclass(frozen=True)
class Operators:
    """The operators of one executor."""

    quantize: Symbol
    quantize_by_scale: Symbol
    quantize_blocks: Symbol
    gemm: Symbol
    quantize_four_bits: Symbol
    quantize_four_bits_at_random: Symbol
    gemm_four_bits: Symbol


def _new(like: Any, shape: tuple[int, ...], dtype: torch.dtype) -> Any:
    return TensorProxy(like=like, shape=shape, dtype=to_dtype(dtype), requires_grad=False)


def _quantize_meta(x: Any, dtype: torch.dtype, power_of_2: bool) -> Any:
    return _new(x, tuple(x.shape), dtype), _new(x, (1,), torch.float32)


def _by_scale_meta(x: Any, scales: Any, index: int, dtype: torch.dtype) -> Any:
    return (*_quantize_meta(x, dtype, False), _new(x, (), torch.float32))


def _gemm_meta(
    a: Any, a_scale: Any, b: Any, b_scale: Any, bias: Any, layout: str, blocks: Any, dtype: torch.dtype
) -> Any:
    if layout not in ("NT", "NN", "TN"):
        raise InvalidArgument(f"layout={layout!r} of a product", hint='It is "NT", "NN" or "TN".')
    (m, k), (length, n) = _transposed(a.shape, layout[0]), _transposed(b.shape, layout[1])
    if k != length:
        raise InvalidArgument(f"a product {layout} of {tuple(a.shape)} and {tuple(b.shape)}")
    return _new(a, (m, n), dtype)


def _four_bits_gemm_meta(
    a: Any, a_scale: Any, a_amax: Any, b: Any, b_scale: Any, b_amax: Any, bias: Any, dtype: torch.dtype
) -> Any:
    if a.shape[1] != b.shape[1]:
        raise InvalidArgument(f"a product in four bits of {tuple(a.shape)} and {tuple(b.shape)}, transposed")
    return _new(a, (a.shape[0], b.shape[0]), dtype)


def _transposed(shape: Any, letter: str) -> tuple[int, int]:
    rows, columns = shape
    return (rows, columns) if letter == "N" else (columns, rows)


def register(ex: OperatorExecutor, prefix: str, kernels: Kernels) -> Operators:
    """Register the operators on an executor, with names that begin with `prefix`.

    No gradient flows through them: the gradient of a linear layer is the rule of the layer.
    """

    def operator(name: str, meta: Callable[..., Any], **kwargs: Any) -> Symbol:
        return ex.register_operator(f"{prefix}_{name}", meta=meta, fn=getattr(kernels, name), **kwargs)

    def blocks_meta(x: Any, dtype: torch.dtype, block: tuple[int, int], power_of_2: bool) -> Any:
        return _new(x, tuple(x.shape), dtype), _new(x, *kernels.block_scales(tuple(x.shape), block))

    def four_bits_meta(x: Any, by_columns: bool, square: bool, transform: bool) -> Any:
        rows, columns = _transposed(x.shape, "T" if by_columns else "N")
        scales = kernels.four_bit_scales((rows, columns))
        return (
            _new(x, (rows, columns // 2), torch.uint8),
            _new(x, scales, torch.float8_e4m3fn),
            _new(x, (1,), torch.float32),
        )

    def at_random_meta(x: Any, by_columns: bool, transform: bool) -> Any:
        return four_bits_meta(x, by_columns, False, transform)

    none: Any = (OpTags.NONDIFFERENTIABLE,)
    random: Any = (*none, OpTags.RANDOM_OP)
    return Operators(
        quantize=operator("quantize", _quantize_meta, tags=none),
        quantize_by_scale=operator(BY_SCALE, _by_scale_meta, tags=none),
        quantize_blocks=operator("quantize_blocks", blocks_meta, tags=none),
        gemm=operator("gemm", _gemm_meta),
        quantize_four_bits=operator("quantize_four_bits", four_bits_meta, tags=none),
        quantize_four_bits_at_random=operator("quantize_four_bits_at_random", at_random_meta, tags=random),
        gemm_four_bits=operator("gemm_four_bits", _four_bits_gemm_meta),
    )
