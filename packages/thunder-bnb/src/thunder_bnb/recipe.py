"""The plugin of recipes "quantize-int4"."""

from __future__ import annotations

import thunder
from thunder.extend import OperatorExecutor

from .four_bit import BitsAndBytesLinearQuant4bit
from .operators import get_bitsandbytes_executor

__all__ = ["QuantizeInt4"]


class QuantizeInt4(thunder.Plugin):
    """Weights of linear layers in nf4: `thunder.compile(model, plugins="quantize-int4")`."""

    def setup_transforms(self) -> list[thunder.Transform]:
        """Return the transform that stores weights in 4 bits."""
        return [BitsAndBytesLinearQuant4bit()]

    def setup_executors(self) -> list[OperatorExecutor]:
        """Return the executor of their products."""
        return [get_bitsandbytes_executor()]
