"""The primitives by name, for rules in their rows: ``prims.reshape(x, shape)``.

Names are looked up when a rule runs, so that rules come before the rows in which they stand.
"""

from __future__ import annotations

from typing import Any

from thunder.ops.operator import symbol_of


class _Primitives:
    def __getattr__(self, name: str) -> Any:
        return symbol_of(f"prims.{name}")


prims = _Primitives()
