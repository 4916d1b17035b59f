"""`BitsAndBytesLinearQuant4bit`: weights of linear layers in 4 bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

import torch
from torch import Tensor

from thunder.core.errors import InvalidArgument
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.extend import Refusal

from .four_bit_kernels import BLOCKSIZES, Blocks, QuantType, dequantised, quantised
from .operators import DEQUANTISE, MATMUL
from .storage import BitsAndBytesStorage

__all__ = ["BitsAndBytesLinearQuant4bit"]

NESTED = ("nested_absmax", "nested_code", "nested_offset")


class BitsAndBytesLinearQuant4bit(BitsAndBytesStorage):
    """Stores the weight of each `nn.Linear` in 4 bits, as bitsandbytes does.

    `<n>.weight` becomes ui8 `(n/2, 1)`, with `<n>.weight.absmax` f32 `(n/blocksize,)`, the largest magnitude
    of each block, and `<n>.weight.code` f32 `(16,)`. A program calls `bnb_matmul_nf4` in place of `linear`.
    Gradients flow to activations and biases; a weight that requires grad stays as it is.

    Args:
        quant_type: `"nf4"`, quantiles of the normal distribution, or `"fp4"`, floating-point numbers.
        blocksize: elements of a block, a power of two from 32 to 4096.
        double_quantization: store `absmax` in 8 bits too, with three more tensors, `<n>.weight.nested_…`.
        skip: names of modules whose weights stay as they are; `*` and `?` are wildcards.
        release: drop the memory of the original weights. The module itself can no longer be called.
    """

    identified_by = ("shapes", "quant_type", "blocksize", "double_quantization")

    def __init__(
        self,
        quant_type: QuantType = "nf4",
        *,
        blocksize: int = 64,
        double_quantization: bool = False,
        skip: Sequence[str] = (),
        release: bool = False,
    ) -> None:
        super().__init__(skip, release)
        if quant_type not in get_args(QuantType):
            raise InvalidArgument(
                f"quant_type={quant_type!r} is not a type of bitsandbytes", hint="Write 'nf4' or 'fp4'."
            )
        if blocksize not in BLOCKSIZES:
            raise InvalidArgument(
                f"blocksize={blocksize!r} is not one of bitsandbytes",
                found={"block sizes": ", ".join(map(str, BLOCKSIZES))},
            )
        self.quant_type, self.blocksize, self.double_quantization = quant_type, blocksize, double_quantization
        self.suffixes = ("absmax", "code", *(NESTED if double_quantization else ()))

    def refusal(self, weight: Tensor) -> Refusal | None:
        """Refuse an odd number of elements, of which two are in a byte."""
        if weight.numel() % 2:
            return Refusal("shape", "two elements are stored in a byte", shape=tuple(weight.shape))
        return None

    def stored(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the indices, the largest magnitudes and the 16 values."""
        indices, blocks = quantised(weight, self.quant_type, self.blocksize, self.double_quantization)
        return {"": indices} | {suffix: getattr(blocks, suffix) for suffix in self.suffixes}

    def dequantised(self, stored: Mapping[str, Tensor], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return the weight that is stored."""
        blocks = Blocks(**{suffix: stored[suffix] for suffix in self.suffixes})
        return dequantised(stored[""], blocks, self.quant_type, self.blocksize, shape, dtype)

    @property
    def weight_symbol(self) -> Symbol:
        """The operator that dequantises."""
        return DEQUANTISE[self.quant_type]

    def weight_call(self, stored: Mapping[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        """Record the operator that dequantises a weight."""
        absmax = stored["absmax"]
        if self.double_quantization:
            absmax = (absmax, *(stored[suffix] for suffix in NESTED))
        return self.weight_symbol(stored[""], absmax, stored["code"], self.blocksize, dtype, shape)

    def product_call(self, x: Any, bias: Any, weight: BoundSymbol) -> Any:
        """Record the product with a stored weight."""
        qweight, *rest = weight.args
        return MATMUL[self.quant_type](x, qweight, bias, *rest)
