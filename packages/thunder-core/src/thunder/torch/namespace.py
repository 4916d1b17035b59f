"""The torch language by name for decompositions: ``ltorch.add(x, y)``, as traces print it.

Names are looked up when a decomposition runs, so that modules of rows need not import one another.
"""

from __future__ import annotations

from typing import Any

from thunder.base.errors import InternalError
from thunder.torch.registration import SYMBOLS


class _Language:
    def __getattr__(self, name: str) -> Any:
        symbol = SYMBOLS.get(name)
        if symbol is None:
            raise InternalError(f"a decomposition calls ltorch.{name}, which no row provides")
        return symbol


ltorch = _Language()
