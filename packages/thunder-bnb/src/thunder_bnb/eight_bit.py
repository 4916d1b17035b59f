"""`BitsAndBytesLinearQuant8bit`: weights of linear layers in int8."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from thunder.core.errors import InvalidArgument
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.extend import Refusal

from .eight_bit_kernels import dequantised, quantised
from .operators import DEQUANTISE, MATMUL
from .storage import BitsAndBytesStorage

__all__ = ["BitsAndBytesLinearQuant8bit"]


class BitsAndBytesLinearQuant8bit(BitsAndBytesStorage):
    """Stores the weight of each `nn.Linear` in int8, and computes products as LLM.int8() does.

    `<n>.weight` becomes i8 of its shape, with `<n>.weight.absmax` f32 `(out,)`, the largest magnitude of each
    row. A product quantises the rows of its input too. Gradients flow to activations and biases; a weight
    that requires grad stays as it is.

    Args:
        threshold: columns of the input with an element of this magnitude or more are multiplied in the dtype
            of the input; with 0, none are.
        skip: names of modules whose weights stay as they are; `*` and `?` are wildcards.
        release: drop the memory of the original weights. The module itself can no longer be called.
    """

    suffixes = ("absmax",)
    identified_by = ("shapes", "threshold")

    def __init__(self, threshold: float = 6.0, *, skip: Sequence[str] = (), release: bool = False) -> None:
        super().__init__(skip, release)
        if not isinstance(threshold, (int, float)) or not threshold >= 0:
            raise InvalidArgument(f"threshold={threshold!r} is not a magnitude", hint="Write 6.0, or 0.")
        self.threshold = float(threshold)

    def refusal(self, weight: Tensor) -> Refusal | None:
        """Refuse values that float16, through which bitsandbytes quantises, cannot have."""
        if weight.is_meta or weight.dtype is torch.float16:
            return None
        largest = weight.detach().abs().max().item()
        if largest > torch.finfo(torch.float16).max:
            return Refusal("range", "int8 is computed from float16, which overflows", largest=largest)
        return None

    def stored(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the weight in int8 and the largest magnitudes of its rows."""
        q, absmax = quantised(weight)
        return {"": q, "absmax": absmax}

    def dequantised(self, stored: Mapping[str, Tensor], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return the weight that is stored."""
        return dequantised(stored[""], stored["absmax"], dtype)

    @property
    def weight_symbol(self) -> Symbol:
        """The operator that dequantises."""
        return DEQUANTISE["int8"]

    def weight_call(self, stored: Mapping[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        """Record the operator that dequantises a weight."""
        return self.weight_symbol(stored[""], stored["absmax"], dtype, shape)

    def product_call(self, x: Any, bias: Any, weight: BoundSymbol) -> Any:
        """Record the product with a stored weight."""
        qweight, absmax, dtype, shape = weight.args
        return MATMUL["int8"](x, qweight, bias, absmax, self.threshold, dtype, shape)
