"""Which sizes that depend on data the computation finds, and are no decisions (Note [Computed sizes])."""

from __future__ import annotations

from dataclasses import dataclass

from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import SymbolicInt, new_size

__all__ = ["ComputedPlaces", "ComputedSizes"]


@dataclass(frozen=True)
class ComputedPlaces:
    """The places of a program, by their names, whose sizes the computation finds.

    With ``everywhere`` they are all but those that are named.
    """

    everywhere: bool = False
    named: frozenset[str] = frozenset()

    def __contains__(self, place: str) -> bool:
        return (place in self.named) is not self.everywhere

    def __bool__(self) -> bool:
        return self.everywhere or bool(self.named)


class ComputedSizes:
    """The sizes that the computation finds, of one acquisition.

    Args:
        facts: what is known of the sizes; None if no size is a symbol.
        places: where sizes are found.
    """

    def __init__(self, facts: SizeFacts | None = None, places: ComputedPlaces | None = None) -> None:
        self._facts = facts
        self._places = ComputedPlaces() if facts is None or places is None else places

    def are_at(self, place: str) -> bool:
        """Return whether the sizes at a place are found by the computation."""
        return place in self._places

    def new(self, hint: int, place: str, low: int | None) -> SymbolicInt:
        """Return a new size with its value in the call that is traced, and a lower bound."""
        assert self._facts is not None, "the place is one of those where sizes are found"
        return new_size(self._facts, hint, place, low, computed=True)
