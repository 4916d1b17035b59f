"""Operators of weights that are stored in 8 bits: `dequantized_weight`, and the product `stored_linear`.

    w = dequantized_weight(q, scale_inv, dtype)
    y = stored_linear(x, q, scale_inv, bias, dtype)      linear(x, w, bias), with x rounded to 8 bits too

Where no executor computes `stored_linear` in 8 bits, it is the product with the dequantised weight.
"""

from __future__ import annotations

from typing import Any

import thunder
import thunder.torch as ltorch
from thunder.extend import OperatorExecutor

__all__ = ["dequantized_weight", "stored_linear"]

_definitions = OperatorExecutor("fp8_stored")


def _dequantized(q: Any, scale_inv: Any, dtype: Any) -> Any:
    return ltorch.to(ltorch.mul(ltorch.to(q, thunder.float32), scale_inv), dtype)


def _linear(x: Any, q: Any, scale_inv: Any, bias: Any, dtype: Any) -> Any:
    return ltorch.linear(x, _dequantized(q, scale_inv, dtype), bias)


dequantized_weight = _definitions.register_operator("dequantized_weight", like=_dequantized)
stored_linear = _definitions.register_operator("stored_linear", like=_linear)
