"""The operators by Transformer Engine 2.20.

Its quantised tensors are taken apart into data and inverse scale, and put together again for each product, so
that no object of the library outlives a call. With one scale for each tensor, the kernels for Hopper multiply
matrices whose rows are summed together: an operand that is stored in the other direction is transposed first,
in 8 bits. Written from the library's source; nothing here has run on a GPU yet.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

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


def _is_columnwise(block: tuple[int, int]) -> bool:
    """Return whether the elements of a block are summed along the first dimension."""
    return block[1] == 1


def _quantize_blocks(
    x: Tensor, dtype: torch.dtype, block: tuple[int, int], power_of_2: bool
) -> tuple[Tensor, Tensor]:
    """Round a matrix to 8 bits by a scale for each block; the scales have the library's layout."""
    columnwise = _is_columnwise(block)
    usage = {"rowwise": not columnwise, "columnwise": columnwise}
    if _is_mx(block):
        quantizer = library("transformer_engine.pytorch.tensor.mxfp8_tensor").MXFP8Quantizer(
            _format(dtype), **usage
        )
    else:
        quantizer = library("transformer_engine.pytorch.tensor.float8_blockwise_tensor").Float8BlockQuantizer(
            _format(dtype),
            **usage,
            force_pow_2_scales=power_of_2,
            block_scaling_dim=2 if block == (128, 128) else 1,
        )
    quantised = quantizer(x.contiguous())
    if not columnwise:
        return quantised._rowwise_data.view(dtype), quantised._rowwise_scale_inv
    data = quantised._columnwise_data.view(dtype)
    return (data if _is_mx(block) else data.t()), quantised._columnwise_scale_inv


def _is_mx(block: tuple[int, int]) -> bool:
    return 32 in block


def _block_scales(shape: tuple[int, ...], block: tuple[int, int]) -> tuple[tuple[int, ...], torch.dtype]:
    """Return the shape and dtype of the library's inverse scales (`get_scale_shape` of its quantizers)."""
    rows, columns = shape
    if _is_mx(block):
        if _is_columnwise(block):
            return (_padded(rows // 32, 4), _padded(columns, 128)), torch.uint8
        return (_padded(rows, 128), _padded(columns // 32, 4)), torch.uint8
    down, across = -(-rows // 128), -(-columns // 128)
    if block == (128, 128):
        return (down, _padded(across, 4)), torch.float32
    if _is_columnwise(block):
        return (down, _padded(columns, 4)), torch.float32
    return (across, _padded(rows, 4)), torch.float32


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


#: layout of a product → the library's layout, and whether the kernel reads a and b column by column
_LAYOUTS = {"NT": ("TN", False, False), "NN": ("NN", False, True), "TN": ("NT", True, True)}


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
    """Return a @ b + bias; the library takes the operands in the other order."""
    multiply = library("transformer_engine.pytorch.cpp_extensions").general_gemm
    if blocks == (None, None):
        left = _tensor(a if layout[0] == "N" else a.t(), a_scale)
        right = _tensor(b if layout[1] == "T" else b.t(), b_scale)
        theirs = "TN"
        fast = layout == "NT"  # the recipes' accumulation: fast forward, split backward
    else:
        theirs, a_columnwise, b_columnwise = _LAYOUTS[layout]
        left = _blocked(a, a_scale, blocks[0], a_columnwise)
        right = _blocked(b, b_scale, blocks[1], b_columnwise)
        fast = False
    in_kernel = dtype is not torch.float32  # cuBLAS adds no bias in float32 to products in FP8
    result: Tensor = multiply(
        right,
        left,
        out_dtype=dtype,
        layout=theirs,
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


def _blocked(data: Tensor, scale_inv: Tensor, block: Block, columnwise: bool) -> Any:
    """Return data and inverse scales of blocks as a quantised tensor of the library."""
    assert block is not None, "both operands of a product have blocks, or neither"
    storages = "transformer_engine.pytorch.tensor.storage."
    is_column = _is_columnwise(block)
    values = data if _is_mx(block) or not is_column else data.t()
    fields: dict[str, Any] = dict.fromkeys(
        ("rowwise_data", "rowwise_scale_inv", "columnwise_data", "columnwise_scale_inv")
    )
    prefix = "columnwise" if is_column else "rowwise"
    fields |= {
        f"{prefix}_data": values.contiguous().view(torch.uint8),
        f"{prefix}_scale_inv": scale_inv,
        "fp8_dtype": _format(data.dtype),
        "quantizer": None,
    }
    if _is_mx(block):
        module = library(f"{storages}mxfp8_tensor_storage")
        return module.MXFP8TensorStorage(**fields, with_gemm_swizzled_scales=False)
    module = library(f"{storages}float8_blockwise_tensor_storage")
    stored = module.Float8BlockwiseQTensorStorage(**fields, is_2D_scaled=block == (128, 128))
    if block == (128, 128) and columnwise:
        stored.update_usage(rowwise_usage=True, columnwise_usage=True)  # the transpose, with its scales
    return stored


def _quantize_four_bits_at_random(
    x: Tensor, by_columns: bool, transform: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Round a matrix to four bits stochastically; the library draws from torch's default generator."""
    return _quantize_four_bits(x, by_columns, False, transform, at_random=True)


def _quantize_four_bits(
    x: Tensor, by_columns: bool, square: bool, transform: bool, *, at_random: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Round a matrix to four bits; the scales have the library's layout."""
    quantizer = library("transformer_engine.pytorch.tensor.nvfp4_tensor").NVFP4Quantizer(
        rowwise=not by_columns,
        columnwise=by_columns,
        with_rht=transform,
        with_post_rht_amax=transform,
        with_2d_quantization=square,
        stochastic_rounding=at_random,
    )
    quantised = quantizer(x.contiguous())
    if by_columns:
        found = quantised._columnwise_data, quantised._columnwise_scale_inv, quantised._amax_columnwise
    else:
        found = quantised._rowwise_data, quantised._rowwise_scale_inv, quantised._amax_rowwise
    data, scales, amax = found
    return data, scales.view(torch.float8_e4m3fn), amax


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
    """Return a @ b.T + bias; the library takes the operands in the other order."""
    multiply = library("transformer_engine.pytorch.cpp_extensions").general_gemm
    operands = _four_bit_tensor(b, b_scale, b_amax), _four_bit_tensor(a, a_scale, a_amax)
    in_kernel = dtype is not torch.float32
    given = bias if in_kernel else None
    result: Tensor = multiply(*operands, out_dtype=dtype, layout="TN", bias=given)[0]
    return result if bias is None or in_kernel else result + bias


def _four_bit_tensor(data: Tensor, scales: Tensor, amax: Tensor) -> Any:
    """Return data, scales and largest magnitude as a quantised tensor of the library, read by rows."""
    storages = library("transformer_engine.pytorch.tensor.storage.nvfp4_tensor_storage")
    return storages.NVFP4TensorStorage(
        rowwise_data=data,
        rowwise_scale_inv=scales.view(torch.uint8),
        columnwise_data=None,
        columnwise_scale_inv=None,
        amax_rowwise=amax,
        amax_columnwise=None,
        fp4_dtype=library("transformer_engine.pytorch.constants").DType.kFloat4E2M1,
        quantizer=None,
        with_gemm_swizzled_scales=False,
    )


def _four_bit_scales(shape: tuple[int, int]) -> tuple[int, ...]:
    """Return the shape of the library's scales (`NVFP4Quantizer.get_scale_shape`)."""
    return _padded(shape[0], 128), _padded(-(-shape[1] // 16), 4)


#: the operators by the kernels of Transformer Engine
KERNELS = Kernels(
    quantize=_quantize,
    quantize_by_scale=_quantize_by_scale,
    quantize_blocks=_quantize_blocks,
    gemm=_gemm,
    quantize_four_bits=_quantize_four_bits,
    quantize_four_bits_at_random=_quantize_four_bits_at_random,
    gemm_four_bits=_gemm_four_bits,
    four_bit_scales=_four_bit_scales,
    block_scales=_block_scales,
)
