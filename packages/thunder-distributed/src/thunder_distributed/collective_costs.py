"""The time of a collective by the algorithms that implement it.

B is the number of bytes of the whole tensor, n that of the devices. At a level of the network, r units of the
level below communicate, with k devices of the group in each; a device sends w bytes a second on its links,
and a message takes a seconds more.

    ring        B (n - 1) / n / min(k w) + the latencies of a way around that leaves out one hop
    rings       sum over levels of  B (r - 1) / (r k) / w + (r - 1) a
    doubling    sum over levels of  B (r - 1) / (r k) / w + log2(r) a
    tree        2 (B / min(k w) + sum over levels of log2(r) a), of an all-reduce

The first three are of an all-gather or a reduce-scatter; an all-reduce is both. A ring through nodes has a
channel for each of their adapters (k of them). "rings" and "doubling" begin within the units that are closest
to each other, so that only a k-th part of the tensor leaves a unit with k devices.

Sources: rings, Patarasuk and Yuan, Bandwidth optimal all-reduce algorithms, 2009; recursive doubling and
halving, Thakur, Rabenseifner and Gropp, Optimization of collective communication operations in MPICH, 2005;
two trees, of which each has half of the tensor, Sanders, Speck and Träff, Two-tree algorithms for full
bandwidth broadcast, reduction and scan, 2009.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from thunder.core.errors import InvalidArgument

from .networks import Network, Span, power_of_two, rounds_of

__all__ = ["ALGORITHMS", "ROUNDS", "Cost", "collective_cost", "contended", "joined"]


@dataclass(frozen=True)
class Cost:
    """What a collective takes.

    Attributes:
        seconds: until it is over, if no other one uses its links.
        busy: for each level of the network, the seconds in which the links of a device are in use.
        algorithm: the fastest one.
    """

    seconds: float
    busy: tuple[float, ...] = ()
    algorithm: str = ""

    def times(self, count: float) -> Cost:
        """Return the cost of so many collectives, one after the other."""
        return Cost(count * self.seconds, tuple(count * b for b in self.busy), self.algorithm)


def joined(first: Cost, second: Cost) -> Cost:
    """Return the cost of two collectives of one group, one after the other."""
    busy = tuple(a + b for a, b in zip(first.busy, second.busy, strict=True))
    return Cost(first.seconds + second.seconds, busy, first.algorithm)


Row = tuple[float, tuple[float, ...]]


def _ring(nbytes: float, span: Span, network: Network) -> Row:
    levels = network.levels[: len(span.ways)]
    sent = nbytes * (span.size - 1) / span.size
    busy = tuple(
        sent / (k * level.bandwidth) if r > 1 else 0.0
        for level, r, k in zip(levels, span.ways, span.members, strict=True)
    )
    return max(busy) + sum(n * level.latency for n, level in zip(_hops(span), levels, strict=True)), busy


def _hops(span: Span) -> list[int]:
    """Return for each level the hops of the longest way in a ring: all but one of the innermost level."""
    units, hops = span.size, []
    for ways in span.ways:
        hops.append(units - units // ways)
        units //= ways
    hops[-1] += 1
    first = next(i for i, count in enumerate(hops) if count)
    hops[first] -= 1
    return hops


def _by_level(latencies: Callable[[int], int]) -> Callable[[float, Span, Network], Row]:
    def cost(nbytes: float, span: Span, network: Network) -> Row:
        rows = list(zip(network.levels, span.ways, span.members, strict=False))
        busy = tuple(nbytes * (r - 1) / (r * k) / level.bandwidth for level, r, k in rows)
        return sum(busy) + sum(latencies(r) * level.latency for level, r, _ in rows), busy

    return cost


def _tree(nbytes: float, span: Span, network: Network) -> Row:
    rows = list(zip(network.levels, span.ways, span.members, strict=False))
    busy = tuple(2 * nbytes / (k * level.bandwidth) if r > 1 else 0.0 for level, r, k in rows)
    return max(busy) + sum(2 * rounds_of(r) * level.latency for level, r, _ in rows), busy


#: name → the seconds of an all-gather or reduce-scatter, of "tree" of an all-reduce, and those of each level
ALGORITHMS: Final[Mapping[str, Callable[[float, Span, Network], Row]]] = {
    "ring": _ring,
    "rings": _by_level(lambda ways: ways - 1),
    "doubling": _by_level(rounds_of),
    "tree": _tree,
}

#: collective → how often the tensor goes around
ROUNDS: Final[Mapping[str, int]] = {"all_gather": 1, "reduce_scatter": 1, "broadcast": 1, "all_reduce": 2}


def collective_cost(kind: str, nbytes: float, ranks: Sequence[int] | Span, network: Network) -> Cost:
    """Return the cost of a collective by the fastest of the network's algorithms.

    Args:
        kind: `all_gather`, `reduce_scatter`, `broadcast`, `all_reduce`; `rotate` or `send`, in which a device
            sends its tensor to one other; `all_to_all`, in which it sends a part to each.
        nbytes: of the whole tensor; of a `rotate`, `send` and `all_to_all`, what a device has of it.
        ranks: global ranks of the group, or how it lies in the network.

    Raises InvalidArgument for an algorithm that is not known, and if none is for the collective.
    """
    span = ranks if isinstance(ranks, Span) else network.span(ranks)
    if span.size == 1 or not nbytes:
        return Cost(0.0, (0.0,) * len(span.ways))
    if kind in ("rotate", "send"):
        return _one_message(nbytes, span, network)
    if kind == "all_to_all":
        return _all_to_all(nbytes, span, network)
    found = []
    for name in network.algorithms:
        if name not in ALGORITHMS:
            raise InvalidArgument(
                f"{name!r} is not an algorithm of collectives", found={"known": ", ".join(ALGORITHMS)}
            )
        if name == "tree" and kind != "all_reduce":
            continue
        if name == "doubling" and not all(map(power_of_two, span.ways)):
            continue
        rounds = 1 if name == "tree" else ROUNDS[kind]
        seconds, busy = ALGORITHMS[name](nbytes, span, network)
        found.append(Cost(rounds * seconds, tuple(rounds * b for b in busy), name))
    if not found:
        raise InvalidArgument(
            f"the network has no algorithm for {kind} of {span.size} devices",
            found={"algorithms": ", ".join(network.algorithms)},
            hint='Add "ring", which is for any number.',
        )
    return min(found, key=lambda cost: cost.seconds)


def _one_message(nbytes: float, span: Span, network: Network) -> Cost:
    """Return the cost of a message of each device to the next one; some pass the links of each level."""
    rows = [(level, r > 1) for level, r in zip(network.levels, span.ways, strict=False)]
    busy = tuple(nbytes / level.bandwidth if passes else 0.0 for level, passes in rows)
    seconds = max(b + level.latency for b, (level, passes) in zip(busy, rows, strict=True) if passes)
    return Cost(seconds, busy, "message")


def _all_to_all(nbytes: float, span: Span, network: Network) -> Cost:
    """Return the cost of sending a part to each device, one after the other, on all levels at once."""
    busy, latency, units = [], 0.0, 1
    for level, r in zip(network.levels, span.ways, strict=False):
        partners = units * (r - 1)
        busy.append(nbytes * partners / span.size / level.bandwidth)
        latency += partners * level.latency
        units *= r
    return Cost(max(busy) + latency, tuple(busy), "messages")


def contended(costs: Iterable[Cost]) -> float:
    """Return the seconds until collectives that begin at once are over, if links share their time fairly.

    No link is idle while there is something to send on it: the time is that of the slowest collective, or
    that in which the links of one level are in use, whichever is longer.
    """
    costs = list(costs)
    depth = max((len(cost.busy) for cost in costs), default=0)
    loads = (sum(c.busy[i] for c in costs if i < len(c.busy)) for i in range(depth))
    return max([*(cost.seconds for cost in costs), *loads], default=0.0)
