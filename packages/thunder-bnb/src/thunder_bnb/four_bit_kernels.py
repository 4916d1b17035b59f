"""Weights in 4 bits: quantisation, its inverse, and products, by bitsandbytes.

A weight w of n elements is divided into blocks of `blocksize` elements in row-major order:
w = code[q] · absmax, with a 4-bit index q for each element, two in a byte, and the largest magnitude of each
block. `code` has 16 values: quantiles of the normal distribution (nf4), or floating-point numbers of 4 bits
(fp4). With double quantisation absmax itself is in 8 bits, in blocks of 256. Dettmers et al., "QLoRA", 2023.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from thunder.core.errors import InvalidArgument

from .library import kernels, library

__all__ = ["BLOCKSIZES", "Blocks", "QuantType", "dequantised", "product", "quantised"]

QuantType = Literal["nf4", "fp4"]
BLOCKSIZES: Final = (32, 64, 128, 256, 512, 1024, 2048, 4096)
NESTED_BLOCKSIZE: Final = 256
#: elements that are quantised at a time; a multiple of each block size
CHUNK: Final = 1 << 18


class Blocks(NamedTuple):
    """The stored tensors that belong to the 4-bit indices of a weight.

    absmax: f32 `(blocks,)`, or ui8 with the three others: nested_absmax f32 `(⌈blocks / 256⌉,)`, nested_code
    f32 `(256,)` and nested_offset f32 `()`. code: f32 `(16,)`.
    """

    absmax: Tensor
    code: Tensor
    nested_absmax: Tensor | None = None
    nested_code: Tensor | None = None
    nested_offset: Tensor | None = None

    @classmethod
    def of(cls, absmax: Tensor | tuple[Tensor, ...], code: Tensor) -> Blocks:
        """Return these tensors; with double quantisation, `absmax` is it and the three nested ones."""
        return cls(absmax[0], code, *absmax[1:]) if isinstance(absmax, tuple) else cls(absmax, code)


def quantised(weight: Tensor, quant_type: QuantType, blocksize: int, nested: bool) -> tuple[Tensor, Blocks]:
    """Return the indices of a weight, ui8 `(n/2, 1)`, and what belongs to them.

    A weight on the meta device gives tensors on the meta device; else at most CHUNK elements are converted at
    a time, beside the result.
    """
    flat = weight.detach().reshape(-1)
    if flat.is_meta:
        return _meta_forms(flat.numel(), blocksize, nested)
    parts = [kernels().quantize_4bit(part, blocksize, quant_type, torch.uint8) for part in flat.split(CHUNK)]
    indices, absmax = (torch.cat(tensors) for tensors in zip(*parts, strict=True))
    code = library().functional.get_4bit_type(quant_type, device=weight.device)
    if not nested:
        return indices, Blocks(absmax, code)
    offset = absmax.mean()
    compressed, state = library().functional.quantize_blockwise(absmax - offset, blocksize=NESTED_BLOCKSIZE)
    return indices, Blocks(compressed, code, state.absmax, state.code.clone(), offset)


def _meta_forms(elements: int, blocksize: int, nested: bool) -> tuple[Tensor, Blocks]:
    """Return the stored tensors of a weight on the meta device."""
    blocks = -(-elements // blocksize)

    def empty(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    indices, code = empty(torch.uint8, elements // 2, 1), empty(torch.float32, 16)
    if not nested:
        return indices, Blocks(empty(torch.float32, blocks), code)
    absmax = empty(torch.float32, -(-blocks // NESTED_BLOCKSIZE))
    nested_code, offset = empty(torch.float32, 256), empty(torch.float32)
    return indices, Blocks(empty(torch.uint8, blocks), code, absmax, nested_code, offset)


def dequantised(
    indices: Tensor,
    blocks: Blocks,
    quant_type: QuantType,
    blocksize: int,
    shape: Sequence[int],
    dtype: torch.dtype,
) -> Tensor:
    """Return the weight that is stored, code[indices] · absmax in float32, rounded to `dtype`.

    The kernel gets the weight as one row. For several rows that do not consist of whole blocks, the kernel
    for CPUs with AVX-512 of bitsandbytes 0.50 takes the largest magnitudes of wrong blocks.
    """
    check_code(blocks.code, quant_type)
    absmax = _absmax(blocks)
    row: Tensor = kernels().dequantize_4bit(indices, absmax, blocksize, quant_type, (1, prod(shape)), dtype)
    return row.view(*shape)


def _absmax(blocks: Blocks) -> Tensor:
    """Return the largest magnitude of each block in float32."""
    if blocks.nested_absmax is None or blocks.nested_offset is None:
        return blocks.absmax
    absmax: Tensor = kernels().dequantize_blockwise(
        blocks.absmax, blocks.nested_absmax, blocks.nested_code, NESTED_BLOCKSIZE, torch.float32
    )
    return absmax + blocks.nested_offset


def product(
    x: Tensor,
    indices: Tensor,
    bias: Tensor | None,
    blocks: Blocks,
    quant_type: QuantType,
    blocksize: int,
    shape: Sequence[int],
) -> Tensor:
    """Return x wᵀ + bias for a stored weight w of `shape` (out, in); x: `(*, in)`.

    It is computed in the dtype of x. Rows of whole blocks are given to bitsandbytes' product; on a CPU that
    is the weight, dequantised, and torch's product.
    """
    if shape[1] % blocksize or x.numel() == 0:
        weight = dequantised(indices, blocks, quant_type, blocksize, shape, x.dtype)
        return torch.nn.functional.linear(x, weight, bias)
    check_code(blocks.code, quant_type)
    nested = blocks.nested_absmax is not None
    out: Tensor = kernels().gemm_4bit(
        x,
        indices,
        shape,
        blocks.nested_absmax if nested else blocks.absmax,
        blocksize,
        quant_type,
        bias=bias,
        absmax_8bit=blocks.absmax if nested else None,
        absmax_code=blocks.nested_code,
        absmax_offset=blocks.nested_offset,
    )
    return out


def check_code(code: Tensor, quant_type: QuantType) -> None:
    """Raise InvalidArgument if 16 stored values are not those of the type.

    The kernels have the values built in, so a state dict of the other type would give wrong results. A tensor
    is compared once, and again after it was written to.
    """
    version = 0 if code.is_inference() else code._version
    if code.__dict__.get("_bnb_type") == (quant_type, version):
        return
    if code.device.type not in ("meta", "cpu") and torch.cuda.is_current_stream_capturing():
        return
    if not code.is_meta and not torch.allclose(code.detach().cpu().float(), values_of(quant_type), atol=1e-2):
        raise InvalidArgument(
            f"the weight is not stored in {quant_type}: its 16 values are others",
            found={"values": ", ".join(f"{value:.3f}" for value in code.tolist())},
            hint="Was a state dict of another type loaded? The transform's quant_type must be that of it.",
        )
    code.__dict__["_bnb_type"] = (quant_type, version)


@cache
def values_of(quant_type: QuantType) -> Tensor:
    """Return the 16 values of a type, f32 `(16,)` on the CPU."""
    values: Tensor = library().functional.get_4bit_type(quant_type, device="cpu")
    return values
