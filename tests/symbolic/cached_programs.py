"""Random programs that keep tables under ``functools.lru_cache``, with numbers of each call as their keys.

Each program is made twice, in two worlds with caches of their own: eager runs one, and thunder the other.
"""

from __future__ import annotations

import dataclasses
import functools
import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

#: name → the number that a program has as a key
NUMBERS: dict[str, Callable[..., Any]] = {
    "size": lambda x, k, f, mask: x.shape[0],
    "length": lambda x, k, f, mask: len(x),
    "half": lambda x, k, f, mask: x.size(0) // 2 + 1,
    "elements": lambda x, k, f, mask: x.numel(),
    "integer": lambda x, k, f, mask: k,
    "float": lambda x, k, f, mask: f,
    "sum": lambda x, k, f, mask: x.shape[0] + k,
    "quotient": lambda x, k, f, mask: x.shape[0] / 2,
    "item": lambda x, k, f, mask: mask.sum().item(),
    "int": lambda x, k, f, mask: int(mask.sum()) + 1,
    "found": lambda x, k, f, mask: x[mask].shape[0],
}


class Pair(NamedTuple):
    """A key of two parts that is compared by its parts."""

    number: Any
    name: str


@dataclasses.dataclass(frozen=True)
class Key:
    """A key that is compared by its fields."""

    number: Any
    name: str = "key"


def _number_of(key: Any) -> Any:
    """Return the number in a key of any form."""
    while not isinstance(key, int | float):
        key = key.number if isinstance(key, Key) else key[0]
    return key


#: name → the call of a cached function ``fn(self, key, scale)`` with a number
CALLS: dict[str, Callable[..., Any]] = {
    "positional": lambda fn, owner, n: fn(owner, n),
    "keyword": lambda fn, owner, n: fn(owner, key=n, scale=2),
    "scale": lambda fn, owner, n: fn(owner, 3, n),
    "method": lambda fn, owner, n: owner.table(n),
    "tuple": lambda fn, owner, n: fn(owner, (n, "a", (n, 4))),
    "frozenset": lambda fn, owner, n: fn(owner, (1, frozenset({n, 7}))),
    "named tuple": lambda fn, owner, n: fn(owner, Pair(n, "a")),
    "dataclass": lambda fn, owner, n: fn(owner, Key(n)),
    "nested": lambda fn, owner, n: owner.outer(n),
    "twice": lambda fn, owner, n: fn(owner, n) + fn(owner, n),
    "two": lambda fn, owner, n: fn(owner, 2) + fn(owner, n),
}


class World:
    """A program with its caches and what they have done.

    Args:
        rng: chooses the program; equal states choose equal programs.
    """

    def __init__(self, rng: random.Random) -> None:
        self.log: list[Any] = []
        body = rng.choice(list(_BODIES))
        maxsize, typed = rng.choice((None, None, 128, 2, 3, 4)), rng.random() < 0.3
        self.cached = functools.lru_cache(maxsize, typed)(functools.partial(_BODIES[body], self.log))
        self.outer_cached = functools.cache(lambda n: self.cached(self, n))
        number, call = rng.choice(list(NUMBERS)), rng.choice(list(CALLS))
        use = rng.choice(list(_USES))
        self.description = f"{body} {call} {number} {use} maxsize={maxsize} typed={typed}"
        self._parts = NUMBERS[number], CALLS[call], _USES[use]

    def table(self, n: Any) -> Any:
        """Return a table, by the cached function."""
        return self.cached(self, n)

    def outer(self, n: Any) -> Any:
        """Return a table, by a cached function that calls another."""
        return self.outer_cached(n)

    def program(self, x: torch.Tensor, k: int, f: float, mask: torch.Tensor) -> Any:
        """Return what a program computes of a table, and the table."""
        number, call, use = self._parts
        y = x * 2
        return use(y, call(self.cached, self, number(x, k, f, mask)))

    def state(self) -> Any:
        """Return what the caches have done."""
        return self.cached.cache_info(), self.outer_cached.cache_info(), list(self.log)


def _count(n: Any) -> int:
    return int(_number_of(n)) % 5 + 1


def _drawn(log: list[Any], owner: Any, key: Any, scale: Any = 1) -> Any:
    return torch.rand(_count(key)).sum() * scale


def _noted(log: list[Any], owner: Any, key: Any, scale: Any = 1) -> Any:
    log.append((_number_of(key), scale))
    return torch.full((1,), float(len(log)))


def _numbered(log: list[Any], owner: Any, key: Any, scale: Any = 1) -> Any:
    return _number_of(key) * scale


def _buffer(log: list[Any], owner: Any, key: Any, scale: Any = 1) -> Any:
    return torch.zeros(1) + scale


_BODIES: dict[str, Callable[..., Any]] = {
    "drawn": _drawn, "noted": _noted, "numbered": _numbered, "buffer": _buffer,
}  # fmt: skip


def _written(y: torch.Tensor, table: Any) -> Any:
    if isinstance(table, torch.Tensor):
        table += 1
    return y + table, table


_USES: dict[str, Callable[..., Any]] = {
    "added": lambda y, table: (y + table, None),
    "returned": lambda y, table: (y * table, table),
    "written": _written,
}


#: what the caller does between calls, with the number of one of them
ACTIONS: dict[str, Callable[[World, int], Any]] = {
    "nothing": lambda world, n: None,
    "fills": lambda world, n: world.cached(world, n),
    "fills the outer one": lambda world, n: world.outer_cached(n),
    "clears": lambda world, n: world.cached.cache_clear(),
    "writes": lambda world, n: _written(torch.ones(1), world.cached(world, n)),
}


def calls_of(rng: random.Random, count: int) -> Sequence[tuple[str, int, int, float, int]]:
    """Return calls: what the caller does before, a length, an integer, a float and a count of chosen rows."""
    return [
        (
            rng.choice((*ACTIONS, "nothing", "nothing")),
            rng.choice((3, 4, 5, 6)),
            rng.choice((1, 2, 3)),
            rng.choice((0.5, 1.5, 2.0)),
            rng.choice((1, 2, 3)),
        )
        for _ in range(count)
    ]
