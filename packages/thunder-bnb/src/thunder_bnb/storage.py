"""What the storages of bitsandbytes have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunder_transforms.weight_storage import WeightStorage

from .library import library

__all__ = ["BitsAndBytesStorage"]


class BitsAndBytesStorage(WeightStorage):
    """Stores weights as bitsandbytes quantises them."""

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise UserError for a program that is not a module, or if bitsandbytes is missing."""
        super().validate(fn, options)
        library()
