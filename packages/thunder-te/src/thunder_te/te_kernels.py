"""The operators with one scale for each tensor by Transformer Engine 2.20.

Its quantised tensors are taken apart into data and inverse scale, and put together again for each product, so
that no object of the library outlives a call. Kernels for Hopper multiply matrices whose rows are summed
together: an operand that is stored in the other direction is transposed first, in 8 bits. Written from the
library's source; nothing here has run on a GPU yet.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from thunder.core.errors import InvalidArgument

from .library import library
from .operators import Block, Kernels

__all__ = ["KERNELS"]


def _format(dtype: torch.dtype) -> Any:
    """Return the library's name of an 8-bit dtype."""
    formats = library("transformer_engine.pytorch.constants").DType
    return formats.kFloat8E5M2 if dtype is torch.float8_e5m2 else formats.kFloat8E4M3


def _quantize(x: Tensor, dtype: torch.dtype, power_of_2: bool) -> tuple[Tensor, Tensor]:
    """Round a tensor to 8 bits by a scale from its own largest magnitude."""
    tensors = library("transformer_engine.pytorch.tensor.float8_tensor")
    quantizer = tensors.Float8CurrentScalingQuantizer(
        _format(dtype), x.device, rowwise=True, columnwise=False, force_pow_2_scales=power_of_2
    )
    quantised = quantizer(x.contiguous())
    return quantised._data.view(dtype), quantised._scale_inv


def _quantize_by_scale(
    x: Tensor, scales: Tensor, index: int, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Round a tensor to 8 bits by one of several scales."""
    tensors = library("transformer_engine.pytorch.tensor.float8_tensor")
    amax = scales.new_zeros((1,))
    scale = scales[index : index + 1].clone()
    quantised = tensors.Float8Quantizer(scale, amax, _format(dtype), rowwise=True, columnwise=False)(
        x.contiguous()
    )
    return quantised._data.view(dtype), quantised._scale_inv, amax.view(())


def _quantize_blocks(
    x: Tensor, dtype: torch.dtype, block: tuple[int, int], power_of_2: bool
) -> tuple[Tensor, Tensor]:
    """Raise InvalidArgument: the executor's checker refuses recipes with blocks."""
    raise InvalidArgument("transformer_engine has no operator for scales of blocks")


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
    """Return a @ b + bias, by the kernel that sums over the rows of both."""
    multiply = library("transformer_engine.pytorch.cpp_extensions").general_gemm
    left = a if layout[0] == "N" else a.t()
    right = b if layout[1] == "T" else b.t()
    fast = layout == "NT"  # the recipes' accumulation: fast forward, split backward
    in_kernel = dtype is not torch.float32  # cuBLAS adds no bias in float32 to products in FP8
    result: Tensor = multiply(
        _tensor(right, b_scale),
        _tensor(left, a_scale),
        out_dtype=dtype,
        layout="TN",
        bias=bias if in_kernel else None,
        use_split_accumulator=not fast,
    )[0]
    return result if bias is None or in_kernel else result + bias


def _tensor(data: Tensor, scale_inv: Tensor) -> Any:
    """Return data and inverse scale as a quantised tensor of the library."""
    storage = library("transformer_engine.pytorch.tensor.storage.float8_tensor_storage").Float8TensorStorage
    return storage(
        data=data.contiguous().view(torch.uint8),
        fp8_scale_inv=scale_inv,
        fp8_dtype=_format(data.dtype),
    )


#: the operators by the kernels of Transformer Engine
KERNELS = Kernels(_quantize, _quantize_by_scale, _quantize_blocks, _gemm)
