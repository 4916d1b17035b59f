"""The plugin of recipes "quantize-int8"."""

from __future__ import annotations

import thunder
from thunder_onednn.quantised.quantize_weights import QuantizeWeights

__all__ = ["QuantizeInt8"]


class QuantizeInt8(thunder.Plugin):
    """Linear layers in int8: `thunder.compile(model.eval(), "inference", plugins="quantize-int8")`."""

    def setup_transforms(self) -> list[thunder.Transform]:
        """Return the transform that stores weights in int8."""
        return [QuantizeWeights("int8-dynamic")]

    def setup_executors(self) -> list[str]:
        """Return the executor of their products."""
        return ["onednn"]
