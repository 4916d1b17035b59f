"""`QuantizeWeights`: weights of linear layers in 8 and 4 bits, for inference on CPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from thunder.core.errors import InvalidArgument
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.extend import Refusal
from thunder_onednn.quantised import eight_bits, four_bits
from thunder_onednn.quantised.operators import SCHEMES
from thunder_transforms.weight_storage import WeightStorage

__all__ = ["QuantizeWeights"]


class QuantizeWeights(WeightStorage):
    """Stores the weight of each `nn.Linear` in 8 or 4 bits; the executor `onednn` computes with it.

    `"int8-dynamic"`: weights and inputs are in int8, with a scale for each row of both. `"int8"`: weights are
    in int8, and products in bfloat16. `"int4"`: weights are in 4 bits, with a scale and a middle for each
    group, and products in bfloat16. `<n>.weight` becomes the stored form, `<n>.weight.scale` its scales.
    Gradients flow to activations and biases; a weight that requires grad stays as it is.

    Args:
        scheme: one of the three.
        group_size: elements of a group in 4 bits: 32, 64, 128 or 256.
        skip: names of modules whose weights stay as they are; `*` and `?` are wildcards.
        smallest: elements of the smallest weight that is stored; a product with a smaller one has no gain.
        release: drop the memory of the original weights. The module itself can no longer be called.
    """

    suffixes = ("scale",)
    identified_by = ("shapes", "scheme_name")

    def __init__(
        self,
        scheme: Literal["int8-dynamic", "int8", "int4"] = "int8-dynamic",
        *,
        group_size: int = 64,
        skip: Sequence[str] = (),
        smallest: int = 1 << 16,
        release: bool = False,
    ) -> None:
        super().__init__(skip, release)
        if scheme not in SCHEMES:
            raise InvalidArgument(
                f"scheme={scheme!r} is not a way to quantise weights",
                found={"schemes": ", ".join(map(repr, SCHEMES))},
            )
        if group_size not in four_bits.GROUP_SIZES:
            raise InvalidArgument(
                f"group_size={group_size!r} is not one of torch's kernels",
                found={"group sizes": ", ".join(map(str, four_bits.GROUP_SIZES))},
            )
        self.scheme_name, self.scheme = scheme, SCHEMES[scheme]
        self.group_size, self.smallest = group_size, smallest

    def refusal(self, weight: Tensor) -> Refusal | None:
        """Refuse small weights, those that are not on a CPU, and numbers that are not finite."""
        if weight.device.type not in ("cpu", "meta"):
            return Refusal("device", "the kernels compute on CPUs", device=str(weight.device))
        if weight.numel() < self.smallest:
            return Refusal("small", "a product with so small a weight has no gain", elements=weight.numel())
        if not weight.is_meta and not bool(weight.detach().isfinite().all()):
            return Refusal("range", "the weight has infinities or NaNs")
        return self._refusal_of_four_bits(weight) if self.scheme.bits == 4 else None

    def _refusal_of_four_bits(self, weight: Tensor) -> Refusal | None:
        rows, (features, columns) = four_bits.block_rows(), weight.shape
        if rows is None:
            return Refusal("device", "torch's kernels of 4 bits are for AVX2 and AVX-512")
        if features % rows:
            return Refusal("shape", f"the kernel reads blocks of {rows} rows", rows=features)
        if columns % self.group_size:
            return Refusal("shape", f"a row is not groups of {self.group_size}", columns=columns)
        return None

    def stored(self, weight: Tensor) -> dict[str, Tensor]:
        """Return the weight in 8 or 4 bits, and its scales."""
        rows = four_bits.block_rows()
        if self.scheme.bits == 4 and rows is not None:
            q, scale = four_bits.quantised(weight, self.group_size, rows)
        else:
            q, scale = eight_bits.quantised(weight)
        return {"": q, "scale": scale}

    def dequantised(self, stored: Mapping[str, Tensor], shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return the weight that is stored."""
        dequantised = four_bits.dequantised if self.scheme.bits == 4 else eight_bits.dequantised
        return dequantised(stored[""], stored["scale"], dtype)

    @property
    def weight_symbol(self) -> Symbol:
        """The operator that dequantises."""
        return self.scheme.weight

    def weight_call(self, stored: Mapping[str, Any], shape: tuple[int, ...], dtype: torch.dtype) -> Any:
        """Record the operator that dequantises a weight."""
        return self.scheme.weight(stored[""], stored["scale"], dtype)

    def product_call(self, x: Any, bias: Any, weight: BoundSymbol) -> Any:
        """Record the product with a stored weight."""
        q, scale, _ = weight.args
        return self.scheme.product(x, q, scale, bias)
