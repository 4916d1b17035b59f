"""Which statements of two programs are each other, by operator and flow of data; names do not matter.

Two phases, as in GumTree (Falleri et al., Fine-grained and accurate source code differencing, ASE 2014), on
straight lines in the place of trees: equal computations are found by value numbering (Cocke and Schwartz
1970), then statements between them by what they have in common with their neighbours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any, Final

from thunder_store.edited.statements import Program, Statement, Value

__all__ = ["Matching", "match", "moved"]

#: the least similarity of two statements that are matched though they differ
_LEAST: Final = 1.0


class Matching:
    """Pairs of positions, one of each program."""

    def __init__(self, before: Program, after: Program) -> None:
        self.before, self.after = before, after
        self.to_after: dict[int, int] = {}
        self.to_before: dict[int, int] = {}
        self.users = _users(before), _users(after)

    def add(self, i: int, j: int) -> None:
        """Match two statements."""
        self.to_after[i], self.to_before[j] = j, i

    def are_same_value(self, a: Value, b: Value) -> bool:
        """Return whether two operands are one value, as far as is known."""
        if a.producer < 0 or b.producer < 0:
            return a.producer == b.producer
        return self.to_after.get(a.producer) == b.producer and a.index == b.index

    def are_equal(self, i: int, j: int) -> bool:
        """Return whether two statements call one operator on the same values."""
        a, b = self.before.statements[i], self.after.statements[j]
        return a.operator == b.operator and not self.other_arguments(a, b)

    def other_arguments(self, a: Statement, b: Statement) -> list[tuple[str, Any, Any]]:
        """Return the arguments in which two statements differ: (where, before, after), None for none."""
        own, others = dict(a.arguments), dict(b.arguments)
        return [
            (where, own.get(where), others.get(where))
            for where in dict.fromkeys([*own, *others])
            if not self._is_same(own.get(where), others.get(where))
        ]

    def _is_same(self, a: str | Value | None, b: str | Value | None) -> bool:
        if isinstance(a, Value) and isinstance(b, Value):
            return self.are_same_value(a, b)
        return a == b

    def free_before(self) -> list[int]:
        """Return the statements of the first program that are not matched."""
        return [i for i in range(len(self.before.statements)) if i not in self.to_after]

    def free_after(self) -> list[int]:
        """Return those of the second."""
        return [j for j in range(len(self.after.statements)) if j not in self.to_before]


def match(before: Program, after: Program) -> Matching:
    """Return which statements of two programs are each other."""
    matching = Matching(before, after)
    if before.statements and after.statements:  # a program ends with its return
        matching.add(len(before.statements) - 1, len(after.statements) - 1)
    _match_equal(matching)
    while True:
        _match_consumers(matching)
        pair = _most_similar(matching)
        if pair is None:
            return matching
        matching.add(*pair)


def _match_equal(matching: Matching) -> None:
    """Match the computations that are equal from the inputs on, in order where several are."""
    numbers: dict[Any, int] = {}
    open_ones: dict[int, deque[int]] = defaultdict(deque)
    for j, number in enumerate(_numbered(matching.after, numbers)[:-1]):
        open_ones[number].append(j)
    for i, number in enumerate(_numbered(matching.before, numbers)[:-1]):
        if open_ones[number]:
            matching.add(i, open_ones[number].popleft())


def _numbered(program: Program, numbers: dict[Any, int]) -> list[int]:
    """Return the value number of each statement: equal ones compute the same."""
    own: list[int] = []
    seen: dict[Any, int] = defaultdict(int)
    for statement in program.statements:
        arguments = tuple(
            (
                where,
                x if isinstance(x, str) else (own[x.producer] if x.producer >= 0 else x.producer, x.index),
            )
            for where, x in statement.arguments
        )
        key = statement.operator, arguments, len(statement.results)
        seen[key] += 1  # two draws of random numbers are not one value
        own.append(numbers.setdefault((key, seen[key]), len(numbers)))
    return own


def _match_consumers(matching: Matching) -> None:
    """Match statements that are equal but for operands that are matched with other ones."""
    known: dict[str, list[int]] = defaultdict(list)
    for j in matching.free_after():
        known[matching.after.statements[j].operator].append(j)
    for i in matching.free_before():
        candidates = known[matching.before.statements[i].operator]
        found = next((j for j in candidates if matching.are_equal(i, j)), None)
        if found is not None and matching.before.statements[i].operands:
            candidates.remove(found)
            matching.add(i, found)


def _most_similar(matching: Matching) -> tuple[int, int] | None:
    """Return the two free statements that have most in common, if that is enough."""
    best, pair = _LEAST, None
    free = matching.free_after()
    for i in matching.free_before():
        for j in free:
            similarity = _similarity(matching, i, j)
            if similarity > best:
                best, pair = similarity, (i, j)
    return pair


def _similarity(matching: Matching, i: int, j: int) -> float:
    a, b = matching.before.statements[i], matching.after.statements[j]
    total = 1.0 if a.operator == b.operator else 0.0
    operands = max(len(a.operands), len(b.operands))
    if operands:
        same = sum(map(matching.are_same_value, a.operands, b.operands))
        total += same / operands
    consumers = max(len(matching.users[0][i]), len(matching.users[1][j]))
    if consumers:
        uses = {(matching.to_after.get(k), where) for k, where in matching.users[0][i]}
        total += len(uses & set(matching.users[1][j])) / consumers
    if a.results and [t for _, t in a.results] == [t for _, t in b.results]:
        total += 0.25
    if a.results and [n for n, _ in a.results] == [n for n, _ in b.results]:
        total += 0.5
    if a.constants == b.constants:
        total += 0.125
    return total


def _users(program: Program) -> list[list[tuple[int, str]]]:
    """Return for each statement which ones read its results, and as which argument."""
    users: list[list[tuple[int, str]]] = [[] for _ in program.statements]
    for k, statement in enumerate(program.statements):
        for where, x in statement.arguments:
            if isinstance(x, Value) and x.producer >= 0:
                users[x.producer].append((k, where))
    return users


def moved(pairs: Sequence[tuple[int, int]]) -> set[int]:
    """Return the first positions of pairs that have moved: all but a longest increasing subsequence.

    By patience sorting (Fredman 1975), O(n log n).
    """
    ordered = sorted(pairs)
    ends: list[int] = []
    tops: list[int] = []
    previous: list[int | None] = []
    for k, (_, j) in enumerate(ordered):
        place = bisect_left(ends, j)
        previous.append(tops[place - 1] if place else None)
        if place == len(ends):
            ends.append(j)
            tops.append(k)
        else:
            ends[place], tops[place] = j, k
    kept = set[int]()
    last = tops[-1] if tops else None
    while last is not None:
        kept.add(last)
        last = previous[last]
    return {i for k, (i, _) in enumerate(ordered) if k not in kept}
