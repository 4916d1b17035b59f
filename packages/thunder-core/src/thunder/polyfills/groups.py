"""``itertools.groupby``, whose keys may be compared by Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any


def groupby(iterable: Iterable[Any], key: Callable[[Any], Any] | None = None) -> Groups:
    """``itertools.groupby``."""
    return Groups(iterable, key)


class Groups:
    """The groups of successive elements with equal keys, each with the key.

    A group shares the iterator with the groups: it ends when the next one is asked for.
    """

    __slots__ = ("current", "group", "iterator", "key", "target")

    def __init__(self, iterable: Iterable[Any], key: Callable[[Any], Any] | None) -> None:
        self.iterator, self.key = iter(iterable), key
        #: the element that was taken last and its key, until a group has yielded it
        self.current: Any = None
        self.target: tuple[Any] | None = None  # the key of the last group
        self.group: Group | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> tuple[Any, Group]:
        self.group = None
        while self.current is None or (self.target is not None and self.is_in(self.target)):
            self.advance()
        self.target = self.current[1:]
        self.group = group = Group(self, self.target)
        return self.target[0], group

    def advance(self) -> None:
        """Take the next element."""
        element = next(self.iterator)
        self.current = element, element if self.key is None else self.key(element)

    def is_in(self, target: tuple[Any]) -> bool:
        """Return whether the element belongs to the group of a key."""
        a, b = target[0], self.current[1]
        return bool(a is b or a == b)


class Group:
    """The elements of one group."""

    __slots__ = ("groups", "target")

    def __init__(self, groups: Groups, target: tuple[Any]) -> None:
        self.groups, self.target = groups, target

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        groups = self.groups
        if groups.group is not self:
            raise StopIteration
        if groups.current is None:
            groups.advance()
        if not groups.is_in(self.target):
            raise StopIteration
        element, groups.current = groups.current[0], None
        return element
