"""Notes of stages and transforms about a program."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

__all__ = ["Note"]


class Note(ABC):
    """A fact about a program, such as a change or the reason for none, for `thunder.explain`."""

    @abstractmethod
    def facts(self) -> Mapping[str, Any]:
        """Return the facts as the JSON of `thunder.explain` has them."""

    @abstractmethod
    def __str__(self) -> str:
        """Return the line of the table of `thunder.explain`."""
