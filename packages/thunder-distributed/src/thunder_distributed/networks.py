"""Networks of many devices: levels of links, and what collectives take on them.

A network is a table of levels, the innermost one first: devices in a node, nodes in a pod, pods. A level says
what each device has of its links in one direction, and what a message on it takes before its first byte
arrives. Messages of `n` bytes take latency + n / bandwidth (Hockney, The communication challenge for MPP,
1994). All devices communicate at once, in groups that are alike, so the share of each device is what
contention leaves of a link that many share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist

from thunder.core.errors import InvalidArgument

__all__ = ["Level", "Network", "Span", "expected_maximum"]


@dataclass(frozen=True, kw_only=True)
class Level:
    """Links between the units of the level below it.

    Attributes:
        name: what connects them, as "node".
        devices: of a unit of this level; None for all.
        bandwidth: bytes per second in one direction that each device has of these links.
        latency: seconds until the first byte of a message arrives.
    """

    name: str
    devices: int | None
    bandwidth: float
    latency: float


@dataclass(frozen=True)
class Span:
    """How a group of devices lies in a network, from the innermost level to the first that connects all.

    Attributes:
        size: the number of devices.
        ways: for each level, how many units of the level below a unit of it has, of those with devices of the
            group; their product is the size.
        members: for each level, the devices of the group in a unit of the level below.
    """

    size: int
    ways: tuple[int, ...]
    members: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Network:
    """Levels of links, and the algorithms that collectives choose from.

    The algorithms are rows of `collective_costs.ALGORITHMS`. The default ones are NCCL's for several nodes:
    rings, and trees for an all-reduce.

    Raises InvalidArgument for levels whose units do not consist of those of the level below.
    """

    levels: tuple[Level, ...]
    algorithms: tuple[str, ...] = ("ring", "tree")

    def __post_init__(self) -> None:
        sizes = [level.devices for level in self.levels]
        inner, last = sizes[:-1], sizes[-1] if sizes else 0
        if last is not None or any(
            a is None or a < 1 or (b is not None and b % a) for a, b in zip(inner, sizes[1:], strict=False)
        ):
            raise InvalidArgument(
                "the levels of a network are not parts of each other",
                found={"devices of their units": sizes},
                hint="List the innermost level first; each number divides the next; the last is None.",
            )

    def span(self, ranks: Iterable[int]) -> Span:
        """Return how a group lies in the network, of which consecutive ranks are neighbours.

        Of a group that is not alike in all units, each level has the unit with the fewest devices below, and
        the one with the most units.
        """
        return _span(tuple(level.devices for level in self.levels), tuple(ranks))

    def name_of(self, span: Span) -> str:
        """Return the name of the outermost level that a group communicates on."""
        return self.levels[len(span.ways) - 1].name if span.ways else self.levels[0].name


@lru_cache(maxsize=4096)
def _span(devices: tuple[int | None, ...], ranks: tuple[int, ...]) -> Span:
    ways: list[int] = []
    members: list[int] = []
    below = {rank: [rank] for rank in ranks}  # unit of the level below → devices of the group in it
    for count in devices:
        if len(below) == 1:
            break
        units: dict[int, list[int]] = {}
        parts: dict[int, int] = {}
        for unit in below.values():
            number = 0 if count is None else unit[0] // count
            units.setdefault(number, []).extend(unit)
            parts[number] = parts.get(number, 0) + 1
        ways.append(max(parts.values()))
        members.append(min(map(len, below.values())))
        below = units
    return Span(len(ranks), tuple(ways), tuple(members))


def strided(sizes_and_strides: Sequence[tuple[int, int]]) -> tuple[int, ...]:
    """Return the ranks of the group of rank 0 in dimensions of a mesh, of sizes and strides, in order."""
    ranks = [0]
    for size, stride in sizes_and_strides:
        ranks = [rank + i * stride for rank in ranks for i in range(size)]
    return tuple(sorted(ranks))


def expected_maximum(count: int) -> float:
    """Return the expected largest of so many independent standard normal numbers.

    Blom's approximation (Blom, Statistical estimates and transformed beta-variables, 1958); it is within 5 %,
    for more than four within 2 %.
    """
    return NormalDist().inv_cdf((count - 0.375) / (count + 0.25)) if count > 1 else 0.0


def power_of_two(number: int) -> bool:
    """Return whether a number is a power of two."""
    return number & (number - 1) == 0


def rounds_of(ways: int) -> int:
    """Return how often so many are halved until there is one."""
    return math.ceil(math.log2(ways))
