"""The plan of one compile: which sizes and numbers are inputs, and for which answers it is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from thunder.frontend.decisions.computed_sizes import ComputedPlaces
from thunder.frontend.size_choice import LikelySizes

__all__ = ["Answers", "CompilePlan", "CompileStep", "Fewer"]

#: answers to the first questions that a program asks about data
Answers = tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class CompilePlan:
    """What of a call is an input of the compiled program, which is for all its values.

    Note [How a compile is tried again]
    A program may need the value of what its plan has as an input: an executor refuses the call, a function in
    C takes integers alone, a loop runs as often as the number says. Then `EntryCompiler.compile` goes on to a
    plan with fewer inputs, down to one for the numbers of the call, and what was learned is kept for later
    compiles. One loop does so; `CompileStats.last_compile_steps` has its steps.

        1. sizes args[0].shape[0]; sizes of data all    a size that depends on data is found in another call
        2. sizes args[0].shape[0]                       compiled
    """

    #: the sizes and numbers that are inputs, by their sources; None: none without a wish for it
    sizes: frozenset[str] | None = None
    #: where the computation finds sizes that depend on data
    places: ComputedPlaces = field(default_factory=ComputedPlaces)
    #: which sizes are inputs beside these because they probably vary
    likely: LikelySizes | None = None
    #: whether numbers of the arguments may be inputs
    takes_numbers: bool = True
    #: whether all sizes and numbers of the arguments are those of the call, also where there are wishes
    is_for_numbers: bool = False
    #: the answers to the first questions about data; the program is run for the others. With None nothing is
    #: run, and questions are refused
    answers: Answers | None = None

    def fewer(self, **changes: Any) -> CompilePlan:
        """Return the plan with fewer inputs; the program may ask other questions then."""
        return replace(self, answers=None if self.answers is None else (), **changes)

    def for_numbers(self) -> CompilePlan:
        """Return the plan in which the sizes and numbers of the arguments are those of the call."""
        return self.fewer(sizes=None, places=ComputedPlaces(), likely=None, is_for_numbers=True)

    def has_inputs_of(self, other: CompilePlan) -> bool:
        """Return whether the same sizes and numbers are inputs: the program asks the same questions."""
        return (self.sizes, self.places) == (other.sizes, other.places)

    def __str__(self) -> str:
        groups = {
            "sizes": sorted(self.sizes or ()),
            "probable sizes": ["yes"] if self.likely is not None and self.likely.lengths else [],
            "sizes of data": ["all" if self.places.everywhere else n for n in sorted(self.places.named)],
        }
        parts = [f"{name} {', '.join(found)}" for name, found in groups.items() if found]
        return "; ".join(parts) or "the values of the call"


@dataclass(frozen=True)
class Fewer:
    """The next plan of a compile, since one could not be compiled, or should not be."""

    plan: CompilePlan
    why: Exception
    #: notes what was learned, once an entry is there: a program that raises for its arguments raises again
    lesson: Callable[[], None] | None = None
    #: raised once it is known that the program can be compiled without a wish which it does not keep
    refusal: Exception | None = None


@dataclass(frozen=True)
class CompileStep:
    """A plan that was tried: what became of it, and how long it took (ns)."""

    plan: CompilePlan
    #: why it was given up; None if it was compiled
    why: Exception | None
    time: int

    def __str__(self) -> str:
        became = "compiled" if self.why is None else f"{type(self.why).__name__}: {self.why}"
        return " ".join(f"{self.plan} ({self.time / 1e6:.1f} ms): {became}".split())
