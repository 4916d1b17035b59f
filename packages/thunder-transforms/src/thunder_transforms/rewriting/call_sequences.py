"""Search for sequences of calls in a trace: `Pattern`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from thunder.core.analysis import STRUCTURAL
from thunder.core.errors import InvalidArgument
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx

__all__ = ["Match", "Pattern"]

#: `(bsym, previous, context)` → whether it matches, and what to add to the context
Matcher: TypeAlias = Callable[[BoundSymbol, "Match", dict[str, Any]], tuple[bool, dict[str, Any] | None]]
#: (position in the trace, bound symbol), in order
Match: TypeAlias = list[tuple[int, BoundSymbol]]


@dataclass(frozen=True)
class _MatchStep:
    matcher: Matcher
    min_times: int
    max_times: int


def _positional(matcher: Callable[..., Any]) -> Matcher:
    """Return a matcher that is called with positional arguments."""
    try:
        parameters = inspect.signature(matcher).parameters
    except (TypeError, ValueError):  # a function written in C has no signature
        return matcher
    names = [p.name for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
    if not {"previously_matched", "match_ctx"}.issuperset(names) or not names:
        return matcher

    def call(bsym: BoundSymbol, previous: Match, context: dict[str, Any]) -> tuple[bool, Any]:
        facts = {"previously_matched": [call for _, call in previous], "match_ctx": context}
        return matcher(bsym, **{name: facts[name] for name in names})  # type: ignore[no-any-return]

    return call


class Pattern:
    """A sequence of matchers; calling it with a trace returns all matches.

        pattern = Pattern().match(is_linear).match(is_gelu_of_the_previous)
        for match in pattern(trace): ...

    A step takes as many calls as it can, the nearest ones first. Where a later step then finds none, the
    search goes back: to other calls for the earlier steps, and to fewer of them. A pattern matches wherever
    there is a choice of calls that fits; each matcher receives the facts of the current choice alone.

    The calls of a match need not be adjacent, but they can be moved together: no call between them both takes
    a result of the match and computes an argument of a later call of the match. A call belongs to at most one
    match.
    """

    def __init__(self) -> None:
        self._steps: list[_MatchStep] = []

    def match(self, matcher: Matcher, *, min_times: int = 1, max_times: int = 1) -> Pattern:
        """Add a step of `min_times` to `max_times` calls that match; return the pattern itself.

        `matcher(bsym, previous, context)` returns whether the call matches, and facts to add to the context.
        `previous` is the match so far, `context` the facts that earlier steps returned. A matcher with the
        keyword-only parameters `previously_matched` and `match_ctx` receives the calls of the match, and the
        facts, by these names. A negative `max_times` is no limit.
        Raises InvalidArgument for other numbers that no match can have.
        """
        if max_times < 0:
            max_times = sys.maxsize
        if not 0 <= min_times <= max_times or max_times == 0:
            raise InvalidArgument(
                f"a step cannot match {min_times} to {max_times} times",
                hint="min_times is at least 0, max_times at least 1 and at least min_times.",
            )
        self._steps.append(_MatchStep(_positional(matcher), min_times, max_times))
        return self

    def __call__(self, trace: TraceCtx) -> list[Match]:
        """Return all matches, in the order of their first calls."""
        bsyms = trace.bound_symbols
        taken: set[int] = set()
        matches = []
        for start, bsym in enumerate(bsyms):
            if start not in taken and bsym.sym.id not in STRUCTURAL:
                match = self._match_from(bsyms, start, taken)
                if match:
                    matches.append(match)
                    taken.update(index for index, _ in match)
        return matches

    def _match_from(self, bsyms: Sequence[BoundSymbol], start: int, taken: set[int]) -> Match:
        """Return the match that begins with the call at `start`, or an empty list."""
        search = _Search(self._steps, bsyms, start, taken)
        return search.extend(_Partial([], {}, start)) or []


@dataclass(frozen=True)
class _Partial:
    """A partial match: its calls, their facts, the next position, and the calls of the current step."""

    match: Match
    context: dict[str, Any]
    position: int
    step: int = 0
    times: int = 0


@dataclass(frozen=True)
class _Search:
    """A depth-first search for the first complete match that begins at `start`."""

    steps: Sequence[_MatchStep]
    bsyms: Sequence[BoundSymbol]
    start: int
    taken: set[int]

    def extend(self, partial: _Partial) -> Match | None:
        """Return a complete match that begins with `partial`, or None."""
        if partial.step == len(self.steps):
            return partial.match
        step = self.steps[partial.step]
        if partial.times < step.max_times:
            for longer in self._longer(step, partial):
                complete = self.extend(longer)
                if complete is not None:
                    return complete
        if partial.times < step.min_times:
            return None
        return self.extend(replace(partial, step=partial.step + 1, times=0))

    def _longer(self, step: _MatchStep, partial: _Partial) -> Iterator[_Partial]:
        """Yield the partial matches with one more call of the current step, by its position."""
        for index in _reachable(self.bsyms, partial.position, partial.match):
            if not partial.match and index != self.start:
                return  # a match begins at its start or not at all
            if index not in self.taken:
                matches, facts = step.matcher(self.bsyms[index], list(partial.match), dict(partial.context))
                if matches:
                    yield _Partial(
                        [*partial.match, (index, self.bsyms[index])],
                        {**partial.context, **(facts or {})},
                        index + 1,
                        partial.step,
                        partial.times + 1,
                    )


def _reachable(bsyms: Sequence[BoundSymbol], position: int, match: Match) -> Iterator[int]:
    """Yield the positions, from `position` on, of calls that can be moved up to the match."""
    matched = {index for index, _ in match}
    results = {p.name for _, bsym in match for p in bsym.flat_proxy_outs}
    dependent: set[str] = set()  # computed from the match, by calls outside it
    first = match[0][0] if match else position
    for index in range(first, len(bsyms)):
        bsym = bsyms[index]
        if bsym.sym.id in STRUCTURAL or index in matched:
            continue
        is_dependent = any(p.name in dependent for p in bsym.flat_proxy_args)
        if index >= position and not is_dependent:
            yield index
        if is_dependent or any(p.name in results for p in bsym.flat_proxy_args):
            dependent.update([p.name for p in bsym.flat_proxy_outs])
