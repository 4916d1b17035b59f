"""The executors: `fp8_reference`, by formulas in torch, and `transformer_engine`, by its kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from thunder.extend import OperatorExecutor

from . import formulas
from .claims import capability_refusal
from .four_bits import BLOCK, dequantised_four_bits, four_bits, stochastic_four_bits
from .library import installed_version
from .operators import Block, Kernels, register
from .rules import register_layers
from .te_kernels import KERNELS

__all__ = ["fp8_reference_ex", "transformer_engine_ex"]


def _by_scale(x: Tensor, scales: Tensor, index: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Round a tensor to 8 bits by one of several scales."""
    return formulas.by_scale(x, scales[index : index + 1], dtype)


def _gemm(
    a: Tensor,
    a_scale: Tensor,
    b: Tensor,
    b_scale: Tensor,
    bias: Tensor | None,
    layout: str,
    blocks: tuple[Block, Block],
    dtype: torch.dtype,
) -> Tensor:
    """Return a @ b + bias of the dequantised operands."""
    left = formulas.dequantised(a, a_scale, blocks[0])
    right = formulas.dequantised(b, b_scale, blocks[1])
    return formulas.product(
        left.t() if layout[0] == "T" else left, right.t() if layout[1] == "T" else right, dtype, bias
    )


def _block_scales(shape: tuple[int, ...], block: tuple[int, int]) -> tuple[tuple[int, ...], torch.dtype]:
    """Return the shape and dtype of the inverse scales: one for each block."""
    return tuple(-(-size // length) for size, length in zip(shape, block, strict=True)), torch.float32


def _gemm_four_bits(
    a: Tensor,
    a_scale: Tensor,
    a_amax: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_amax: Tensor,
    bias: Tensor | None,
    dtype: torch.dtype,
) -> Tensor:
    """Return a @ b.T + bias of the dequantised operands."""
    left = dequantised_four_bits(a, a_scale, a_amax)
    return formulas.product(left, dequantised_four_bits(b, b_scale, b_amax).t(), dtype, bias)


def _four_bit_scales(shape: tuple[int, int]) -> tuple[int, ...]:
    """Return the shape of the scales: one for each 16 elements of a row."""
    return shape[0], shape[1] // BLOCK


#: the operators by formulas in torch
_REFERENCE = Kernels(
    quantize=formulas.by_own_amax,
    quantize_by_scale=_by_scale,
    quantize_blocks=formulas.by_blocks,
    gemm=_gemm,
    quantize_four_bits=four_bits,
    quantize_four_bits_at_random=stochastic_four_bits,
    gemm_four_bits=_gemm_four_bits,
    four_bit_scales=_four_bit_scales,
    block_scales=_block_scales,
)

fp8_reference_ex = OperatorExecutor("fp8_reference", version=torch.__version__)
register_layers(fp8_reference_ex, register(fp8_reference_ex, "fp8", _REFERENCE), ())

transformer_engine_ex = OperatorExecutor("transformer_engine", version=installed_version())
register_layers(transformer_engine_ex, register(transformer_engine_ex, "te", KERNELS), (capability_refusal,))
