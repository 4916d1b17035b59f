"""The statements of a program as an acyclic graph whose nodes can be merged while it stays acyclic."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence, Set
from heapq import heapify, heappop, heappush

from thunder.base.structural_ids import RELEASES, RETURN
from thunder.base.tags import OpTags
from thunder.ir.effects import KEPT, is_ordered
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag, has_tags

#: Effects before and after which all other statements stay: all but random numbers, which are ordered only
#: among each other.
_BARRIERS = KEPT - {OpTags.RANDOM_OP}


class RegionGraph:
    """Groups of statements, and which of them depend on which.

    Statements are added in program order, each as a group. Groups can be merged at any time; early merges are
    cheaper. A statement is named by its index in the program, a group by the smallest index in it. There is
    an edge

    - from the statement that computes a value to each that reads it, and from these to a `del` of the value;
    - between statements with ordered effects;
    - between a write, a printed line or another effect, and all statements before and after it; what only
      computes may come after the check of a decision that it was before.

    The groups on which a group depends, directly or not, are a bit set of statements, so that a merge that
    would close a cycle is found in one operation. A merge changes the sets of the groups that depend on it:
    they are found from reader to reader, as far as a set changes.

    What a backward computes again stays apart from the forward before it: in one group, the value would be
    kept, or be computed twice at once.
    """

    def __init__(self, bsyms: Sequence[BoundSymbol]) -> None:
        self._direct = _dependencies(bsyms)  # group → statements that it depends on directly
        self._dependents: list[set[int]] = []  # group → added statements that depend on it directly
        self._groups: dict[int, None] = {}  # in order
        self._group: list[int] = []  # statement → group
        self._members: list[int] = []  # group → its statements
        self._ancestors: list[int] = []  # group → the statements that it depends on
        self._apart = _apart(bsyms)  # group → the statements that are never in it

    def add(self) -> int:
        """Add the next statement of the program as a group of its own; return the group."""
        statement = len(self._group)
        ancestors = 0
        for group in {self._group[i] for i in self._direct[statement]}:
            ancestors |= self._ancestors[group] | self._members[group]
            self._dependents[group].add(statement)
        self._groups[statement] = None
        self._group.append(statement)
        self._members.append(1 << statement)
        self._ancestors.append(ancestors)
        self._dependents.append(set())
        return statement

    def groups(self) -> list[int]:
        """Return the groups, in program order of their first statements."""
        return list(self._groups)

    def members(self, group: int) -> list[int]:
        """Return the statements of a group, in program order."""
        return list(_bits(self._members[group]))

    def group_of(self, statement: int) -> int:
        """Return the group of a statement."""
        return self._group[statement]

    def inputs_of(self, group: int) -> list[int]:
        """Return the groups on which a group depends directly, in order."""
        return sorted({self._group[i] for i in self._direct[group]} - {group})

    def depends(self, group: int, other: int) -> bool:
        """Return whether a group depends on another, directly or not."""
        return bool(self._ancestors[group] & self._members[other])

    def can_merge(self, a: int, b: int) -> bool:
        """Return whether no third group depends on one of two groups while the other depends on it.

        They also have no statements that stay apart.
        """
        if (self._apart[a] & self._members[b]) or (self._apart[b] & self._members[a]):
            return False
        if self.depends(a, b):
            a, b = b, a
        return not any(self.depends(third, a) for third in self.inputs_of(b) if third != a)

    def merge(self, a: int, b: int) -> int:
        """Merge two groups for which `can_merge` holds; return the merged group."""
        kept, gone = min(a, b), max(a, b)
        del self._groups[gone]
        for i in _bits(self._members[gone]):
            self._group[i] = kept
        members = self._members[kept] = self._members[kept] | self._members[gone]
        self._ancestors[kept] = (self._ancestors[kept] | self._ancestors[gone]) & ~members
        self._apart[kept] |= self._apart[gone]
        self._direct[kept] |= self._direct[gone]
        self._dependents[kept] |= self._dependents[gone]
        self._tell_dependents(kept)
        return kept

    def _tell_dependents(self, merged: int) -> None:
        """Add what a merged group consists of and depends on to what the groups after it depend on."""
        before = self._ancestors[merged] | self._members[merged]
        told = {merged}
        waiting = [merged]
        while waiting:
            for group in {self._group[i] for i in self._dependents[waiting.pop()]} - told:
                told.add(group)
                if self._ancestors[group] | before != self._ancestors[group]:
                    self._ancestors[group] |= before
                    waiting.append(group)

    def in_order(self, late: Set[int] = frozenset()) -> list[int]:
        """Return the groups such that each follows those that it depends on.

        Of the groups that may come next, the one whose first statement is the earliest comes first, so that
        a program without merged groups keeps its order; those that are `late` come after all others. Kahn's
        algorithm.
        """
        groups = self.groups()
        waiting = {group: len(self.inputs_of(group)) for group in groups}
        dependents: dict[int, list[int]] = {group: [] for group in groups}
        for group in groups:
            for other in self.inputs_of(group):
                dependents[other].append(group)
        ready = [(group in late, group) for group in groups if not waiting[group]]
        heapify(ready)
        order = []
        while ready:
            _, group = heappop(ready)
            order.append(group)
            for dependent in dependents[group]:
                waiting[dependent] -= 1
                if not waiting[dependent]:
                    heappush(ready, (dependent in late, dependent))
        return order


def _dependencies(bsyms: Sequence[BoundSymbol]) -> list[set[int]]:
    """Return for each statement the earlier ones that it depends on directly."""
    producer: dict[str, int] = {}
    readers: defaultdict[str, list[int]] = defaultdict(list)
    barrier, check, ordered = -1, -1, -1  # the last statements of these kinds
    direct: list[set[int]] = []
    for i, bsym in enumerate(bsyms):
        earlier = {producer[p.name] for p in bsym.flat_proxy_args if p.name in producer}
        for p in bsym.flat_proxy_args:
            if bsym.sym.id in RELEASES:
                earlier.update(readers[p.name])
            readers[p.name].append(i)
        has_order = is_ordered(bsym)
        earlier.update(last for last in (barrier, check) if last >= 0)
        if has_order and OpTags.CHECKS_DECISION in bsym.sym.tags and not bsym.flat_proxy_outs:
            check = i
        elif bsym.sym.id == RETURN or (has_order and has_tags(bsym, _BARRIERS)):
            earlier.update(range(max(barrier, 0), i))
            barrier = ordered = i
        if has_order:
            if ordered >= 0:
                earlier.add(ordered)
            ordered = i
        for p in bsym.flat_proxy_outs:
            producer.setdefault(p.name, i)
        direct.append(earlier - {i})
    return direct


def _apart(bsyms: Sequence[BoundSymbol]) -> list[int]:
    """Return for each statement the earlier ones that it stays apart from."""
    forward, apart = 0, []
    for i, bsym in enumerate(bsyms):
        apart.append(forward if BoundSymbolTag.COMPUTED_AGAIN in bsym.own_tags else 0)
        if BoundSymbolTag.BACKWARD not in bsym.own_tags:
            forward |= 1 << i
    return apart


def _bits(number: int) -> Iterator[int]:
    """Yield the positions of the ones of a binary number, from the lowest."""
    while number:
        lowest = number & -number
        yield lowest.bit_length() - 1
        number ^= lowest
