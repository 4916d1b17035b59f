"""Which sizes that depend on data the computation finds, and are no decisions (Note [Computed sizes])."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_sizes import SymbolicInt, new_size

__all__ = ["Answer", "ComputedPlaces", "ComputedSizes", "OtherAnswers", "answers_at"]

#: a place with the number of decisions there before
Answer = tuple[str, int]


class OtherAnswers(Exception):
    """A program has decided on sizes, at ``places``, that were others in an earlier entry.

    It is to be acquired with these sizes as values that the computation finds.
    """

    def __init__(self, places: frozenset[str]) -> None:
        super().__init__(*sorted(places))
        self.places = places


@dataclass(frozen=True)
class ComputedPlaces:
    """The places of a program, by their names, whose sizes the computation finds.

    With ``everywhere`` they are all but those that are named. ``seen`` are the answers that entries have at
    other places.
    """

    everywhere: bool = False
    named: frozenset[str] = frozenset()
    seen: Mapping[Answer, Any] = field(default_factory=dict, compare=False)

    def __contains__(self, place: str) -> bool:
        return (place in self.named) is not self.everywhere

    @property
    def known(self) -> ComputedPlaces:
        """Return the same places without the answers that were seen."""
        return replace(self, seen={})

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

    def check_answers(self, answers: Mapping[Answer, Any]) -> None:
        """Raise OtherAnswers if an earlier entry has another answer to one of these decisions."""
        seen = self._places.seen
        others = frozenset(key[0] for key, answer in answers.items() if seen.get(key, answer) != answer)
        if others:
            raise OtherAnswers(others)


def answers_at(decisions: Any) -> dict[Answer, Any]:
    """Return the answers to the decisions that have places of sizes, by their places."""
    count, answers = Counter[str](), dict[Answer, Any]()
    for decision in decisions:
        if decision.size_place is not None:
            answers[decision.size_place, count[decision.size_place]] = decision.answer
            count[decision.size_place] += 1
    return answers
