"""`scaled_linear`: a linear layer whose scales are state, as `TransformerEngineTransform` writes it.

    y = linear(x, w, b)   →   y = scaled_linear(x, w, b, scales, first)

`scales` is f32 `(layers · 3,)`; `first` is the place of the layer's scale of x, followed by those of w and of
the cotangent. Where no executor computes it in 8 bits, it is `linear`.
"""

from __future__ import annotations

from typing import Any

import thunder.torch as ltorch
from thunder.extend import OperatorExecutor

__all__ = ["scaled_linear"]

_definitions = OperatorExecutor("fp8")


def _linear(input: Any, weight: Any, bias: Any, scales: Any, first: int) -> Any:
    return ltorch.linear(input, weight, bias)


scaled_linear = _definitions.register_operator("scaled_linear", like=_linear)
