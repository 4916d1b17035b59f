"""The exception for calls that no kernel computes."""

from __future__ import annotations

from thunder.extend import Refusal

__all__ = ["Unsupported"]


class Unsupported(Exception):
    """A call for which no kernel is generated; `refusal` has the reason."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal
