"""Which sizes and numbers have differed between calls of a compiled function, see Note [Sizes that vary]."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from thunder.base.provenance import comes_with_arguments
from thunder.compiler.compile_plan import Answers, CompilePlan
from thunder.compiler.stats import CacheEntry, RecompileReason
from thunder.frontend.decisions.computed_sizes import Answer, ComputedPlaces, answers_at
from thunder.frontend.decisions.decision import Decision
from thunder.frontend.facts import Fact, TensorFacts
from thunder.frontend.free_sizes import size_source, stride_source
from thunder.frontend.guards import LOST
from thunder.frontend.size_choice import LikelySizes, why_sizes_are_numbers
from thunder.ir.symbolic_sizes import SymbolicInt, strides_as_products
from thunder.ops import prims

__all__ = ["NO_DIFFERENCES", "Differences", "VaryingInputs", "compare"]


@dataclass
class Differences:
    """How a call differs from an entry."""

    #: the first fact that does not hold, and what there is instead
    first: tuple[Fact, Any] | None = None
    #: the sizes and strides that are others, by their sources, with the numbers that the entry is for; None
    #: for strides, and for symbols that the program has fixed, of which one or more differ
    sizes: dict[str, float | None] = field(default_factory=dict)


NO_DIFFERENCES: Final = Differences()

#: the checks of integers, and of floats
_OF_NUMBERS = (prims.check_number_type_and_value, prims.check_literal_like)
#: further compiles for numbers where executors refuse calls with symbolic sizes
_COMPILES = 4


class VaryingInputs:
    """What of the calls of a compiled function has differed, by its sources, and is an input of new programs.

    Note [Sizes that vary]
    Under ``cache="automatic"`` the first compile is for the sizes of its call. At a miss the tensors of the
    call are compared with those that the entries are for. The sizes in which they differ are symbols from
    then on (Note [Symbolic sizes]), and the others stay numbers:

        f(ones(4, 8))    x: "cpu f32[4, 8]"
        f(ones(5, 8))    x: "cpu f32[i0, 8]", and the entry serves all later lengths for which its facts hold

    Numbers among the arguments are symbols in the same way, and those that a program writes, such as a
    counter or the length of a list of which it reads no items, also where the call differs in other facts
    from all entries and under every option that compiles again:

        def forward(self, x):             1:  prologue: self.calls is 0
            self.calls += 1                   epilogue: self.calls = 1
            return self.layer(x)          2:  prologue: type(self.calls) is int
                                              epilogue: self.calls = i0 + 1

    A tensor that no entry knows may hold what an earlier
    call has computed, such as a cache. Where a size has differed, the sizes of such a tensor that are as long
    as that size was are symbols too, unless the program can be compiled without these alone:

        f(ones(1, 8), cache)    the cache is empty
        f(ones(1, 1), cache)    x: "cpu f32[1, i0]", cache.keys: "cpu f32[1, i1, 16]", i1 is 8 in this call

    A size that a second compile with the same symbols fixes to another number is one that the program needs.
    It is a number again, and so are all of a compile that failed with symbols. Where an executor refuses
    calls because their sizes are symbols, which it would run otherwise, the next programs are for numbers;
    after `_COMPILES` of them, one program for many sizes is worth more than what that executor gains.

    A size that depends on data is a decision at first. Where that has differed, the computation finds it from
    then on, with those after it (Note [Computed sizes]), by the same rules; so it is in a compile for another
    reason in which the answer is not that of an earlier entry. With ``everywhere`` it does so in
    the first compile.
    """

    def __init__(self, *, everywhere: bool = False) -> None:
        self.sizes: frozenset[str] = frozenset()
        #: the places where sizes that depend on data have differed (Note [Computed sizes])
        self._places: frozenset[str] = frozenset()
        self._everywhere = everywhere
        #: whether numbers of the arguments may be symbols: until a compile has failed with them
        self.takes_numbers = True
        #: the answers of entries at places where sizes are decisions
        self._answers: dict[Answer, Any] = {}
        self._needed: frozenset[str] = frozenset()
        #: the values to which compiles have fixed sizes, by these and all symbols of the compile
        self._fixed: dict[tuple[str, frozenset[str]], float] = {}
        self._likely = LikelySizes()
        #: how many compiles are for numbers, since executors refuse symbols; None if none has refused any
        self._compiles: int | None = None

    @property
    def are_worth_refusals(self) -> bool:
        """Whether there have been so many sizes that symbols are used though executors refuse them."""
        return self._compiles == 0

    def plan(self, answers: Answers | None) -> CompilePlan:
        """Return the plan of a new compile for these answers."""
        sizes, places = self.sizes, ComputedPlaces()
        if self._compiles:
            self._compiles -= 1
            sizes = frozenset()
        elif self._everywhere:
            places = ComputedPlaces(True, self._needed)
        else:
            seen = {key: answer for key, answer in self._answers.items() if key[0] not in self._needed}
            places = ComputedPlaces(named=self._places, seen=seen)
        return CompilePlan(
            sizes=sizes,
            places=places,
            likely=dataclasses.replace(self._likely, needed=self._needed),
            takes_numbers=self.takes_numbers,
            answers=answers,
        )

    def note_places(self, places: Sequence[str | None]) -> bool:
        """Note that a size depends on data and has differed at the first of some places.

        Returns whether it is found from now on. So are those at the others, which depend on data too. None is
        for a question with another answer than a size that can be found.
        """
        if places[0] is None or places[0] in self._needed:
            return False
        self._places |= frozenset(p for p in places if p is not None) - self._needed
        return True

    def note_answers(self, decisions: Iterable[Decision]) -> None:
        """Note the answers that a new entry is for: with another one, a size is found from then on."""
        for key, answer in answers_at(decisions).items():
            self._answers.setdefault(key, answer)

    def note_refused(self) -> None:
        """Note that an executor would have run calls whose sizes are numbers."""
        self._compiles = _COMPILES

    def note_numbers(self, reasons: Iterable[RecompileReason]) -> None:
        """Note the numbers that a program has written and whose facts have failed."""
        varying = {
            reason.source
            for reason in reasons
            if type(reason.expected) in (int, float)
            and type(reason.found) is type(reason.expected)
            and reason.source in reason.entry.written
        }
        self.sizes |= varying - self._needed

    def note_sizes(self, compared: Mapping[CacheEntry, Differences]) -> None:
        """Note the sizes in which a call differs from entries."""
        differing = {size for differences in compared.values() for size in differences.sizes}
        self.sizes |= differing - self._needed
        numbers: Iterator[Any] = (n for differences in compared.values() for n in differences.sizes.values())
        lengths = {n for n in numbers if isinstance(n, int)}
        tensors = [f.path for entry in compared for f in entry.guards if f.sym is prims.check_tensor]
        self._likely = LikelySizes(frozenset(lengths), frozenset(path.source for path in tensors))

    def note_free(self, sizes: Iterable[str]) -> None:
        """Note sizes that an entry has as symbols."""
        self.sizes |= frozenset(sizes) - self._needed

    def note_values(self, values: Mapping[str, float | None]) -> None:
        """Note the values of the symbols of a compile that it fixed; None is the value of free ones."""
        symbols = frozenset(values)  # one that is equal to another is free once both are symbols
        fixed = {(size, symbols): value for size, value in values.items() if value is not None}
        self._need(key[0] for key, value in fixed.items() if self._fixed.setdefault(key, value) != value)

    def note_failure(self, places: frozenset[str] = frozenset(), *, numbers: bool = False) -> None:
        """Note that a program could not be compiled with symbols.

        They are the sizes that it finds at places, the numbers of its arguments, or the sizes of its inputs.
        """
        if numbers:
            self.takes_numbers = False
        else:
            self._need(places or self.sizes)

    def _need(self, sizes: Iterable[str]) -> None:
        self._needed |= frozenset(sizes)
        self.sizes -= self._needed
        self._places -= self._needed


def compare(entry: CacheEntry, roots: dict[str, Any], *, with_sizes: bool) -> Differences:
    """Return the first fact of an entry that does not hold, and the sizes and numbers that a call has others.

    The facts are compared in their order, as the prologue does. After the first that differs in more than
    sizes numbers alone are compared: other facts may not exist in the call. So a counter in each layer of a
    cache varies from the second call on, though the first call has made the cache.
    """
    differences, is_another_case = Differences(), False
    for fact in entry.guards:
        may_vary = comes_with_arguments(fact.path) or fact.path.source in entry.written
        if is_another_case and not (may_vary and fact.sym in _OF_NUMBERS):
            continue
        try:
            failure = fact.failure(roots)
        except LOST as error:
            failure, sizes = (error,), None
        else:
            sizes = None if failure is None else _differing(fact, roots, entry, may_vary=may_vary)
        if failure is not None and differences.first is None:
            differences.first = fact, failure[0]
            if not with_sizes:
                break
        if failure is not None and sizes is None:
            is_another_case = True
        differences.sizes |= sizes or {}
    return differences


def _differing(
    fact: Fact, roots: dict[str, Any], entry: CacheEntry, *, may_vary: bool
) -> dict[str, float | None] | None:
    """Return the sizes and numbers that let a fact fail; None if it is not for sizes that it fails."""
    if fact.sym is prims.check_sizes:
        sources = {path.source for path in (fact.path, *fact.others)}
        return dict.fromkeys(sources & entry.fixed_sizes)
    found = fact.path.fetch(roots)
    is_float = type(fact.expected) is type(found) is float
    is_int = fact.sym is _OF_NUMBERS[0] and type(found) is int
    if may_vary and (is_int or (fact.sym is _OF_NUMBERS[1] and is_float)):
        return {fact.path.source: fact.expected}
    if fact.sym is not prims.check_tensor or not _has_other_sizes(fact.expected, found):
        return None
    return {} if why_sizes_are_numbers(found, fact.path) is not None else dict(_other_sizes(fact, found))


def _has_other_sizes(expected: TensorFacts, found: Any) -> bool:
    """Return whether a value is a tensor that differs in sizes and strides alone."""
    has_class = type(found) is expected.type and isinstance(found, torch.Tensor)
    if not has_class or found.is_nested or found.layout is not torch.strided:
        return False
    shape = tuple(found.shape)
    is_alike = dataclasses.replace(expected, shape=shape, strides=None, free=None).describe(found) is None
    return is_alike and len(shape) == len(expected.shape)


def _other_sizes(fact: Fact, found: torch.Tensor) -> Iterator[tuple[str, int | None]]:
    free = fact.expected.shape if fact.expected.free is None else fact.expected.free.shape
    for d, (n, m) in enumerate(zip(free, found.shape, strict=True)):
        if not isinstance(n, SymbolicInt) and n != m:
            yield size_source(fact.path, d), n
    for d in _independent_strides(found):
        if fact.expected.strides_for(found)[d] != found.stride(d):
            yield stride_source(fact.path, d), None


def _independent_strides(t: torch.Tensor) -> list[int]:
    """Return the dimensions whose strides no sizes determine, see Note [Free strides]."""
    dimensions: list[int] = []

    def note(dimension: int) -> int:
        dimensions.append(dimension)
        return t.stride(dimension)

    strides_as_products(t.shape, t.shape, t.stride(), note)
    return dimensions
