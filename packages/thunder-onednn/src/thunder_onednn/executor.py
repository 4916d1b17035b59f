"""The executor `onednn`: products with packed weights.

    y = torch.nn.functional.linear(x, w, b)   →   p = onednn_pack_linear(w, None)
                                                  y = onednn_linear(x, p, b, 512, "none", (), "")

The last arguments of a product are an activation; another form adds a tensor before that. What packs a weight
depends on frozen values alone, so that `Freezing` keeps it. The kernels are those of torch
(`torch.ops.mkldnn`), which add in another order than those of eager.
"""

from __future__ import annotations

import torch

from thunder.extend import OperatorExecutor
from thunder.plugins import Unavailable
from thunder_onednn import convolution, linear
from thunder_onednn.packed_weights import ex
from thunder_onednn.quantised import operators

__all__ = ["executor"]

#: modules that register what the executor computes
_OPERATORS = (linear, convolution, operators)


def executor() -> OperatorExecutor | Unavailable:
    """Return the executor, or why it cannot be used here."""
    return ex if torch.backends.mkldnn.is_available() else Unavailable("this build of torch has no oneDNN")
