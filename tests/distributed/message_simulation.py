"""Messages of collectives one by one: the judge of the formulas of their times.

A message waits for others, then for the links of its sender and of its receiver. It holds both for bytes /
bandwidth, and arrives a latency later. Links serve messages in the order in which these are ready.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from thunder.distributed import Network


@dataclass
class Message:
    source: int
    target: int
    nbytes: float
    after: list[Message] = field(default_factory=list)
    arrives: float = -1.0


def level_of(network: Network, a: int, b: int) -> int:
    """Return the innermost level that connects two ranks."""
    for i, level in enumerate(network.levels):
        if level.devices is None or a // level.devices == b // level.devices:
            return i
    raise AssertionError("the last level connects all")


def simulated(network: Network, messages: Sequence[Message]) -> float:
    """Return when the last of the messages arrives."""
    waiting: dict[int, int] = {id(m): len(m.after) for m in messages}
    following: dict[int, list[Message]] = {}
    for m in messages:
        for earlier in m.after:
            following.setdefault(id(earlier), []).append(m)
    ready = [(0.0, i, m) for i, m in enumerate(messages) if not m.after]
    numbers = {id(m): i for i, m in enumerate(messages)}
    heapq.heapify(ready)
    free: dict[tuple[str, int, int], float] = {}
    while ready:
        time, _, m = heapq.heappop(ready)
        i = level_of(network, m.source, m.target)
        links = ("out", m.source, i), ("in", m.target, i)
        begins = max([time, *(free.get(link, 0.0) for link in links)])
        if begins > time:  # somebody else may be ready before
            heapq.heappush(ready, (begins, numbers[id(m)], m))
            continue
        ends = begins + m.nbytes / network.levels[i].bandwidth
        for link in links:
            free[link] = ends
        m.arrives = ends + network.levels[i].latency
        for later in following.get(id(m), ()):
            waiting[id(later)] -= 1
            if not waiting[id(later)]:
                begins = max(earlier.arrives for earlier in later.after)
                heapq.heappush(ready, (begins, numbers[id(later)], later))
    assert all(m.arrives >= 0 for m in messages)
    return max(m.arrives for m in messages)


def ring(order: Sequence[int], nbytes: float) -> list[Message]:
    """An all-gather around a ring: each rank passes on what it got from the one before it."""
    size, rows = len(order), list[list[Message]]()
    for step in range(size - 1):
        row = []
        for i, rank in enumerate(order):
            message = Message(rank, order[(i + 1) % size], nbytes / size)
            if step:
                message.after.append(rows[-1][i - 1])
            row.append(message)
        rows.append(row)
    return [message for row in rows for message in row]


def channels(ranks: Sequence[int], node: int, nbytes: float) -> list[Message]:
    """A ring for each device of a node, in which another one leaves the node."""
    found = []
    for c in range(node):
        order = []
        for first in range(0, len(ranks), node):
            here = ranks[first : first + node]
            order += [here[(c + 1 + i) % node] for i in range(node)]
        found += ring(order, nbytes / node)
    return found


def by_level(ranks: Sequence[int], node: int, nbytes: float, *, doubling: bool) -> list[Message]:
    """An all-gather between nodes, of devices with the same place in them, then one within each node."""
    size = len(ranks)
    across = [list(ranks[i::node]) for i in range(node)]
    within = [list(ranks[i : i + node]) for i in range(0, size, node)]
    first = _phase(across, nbytes / node, (), doubling=doubling)
    return first + _phase(within, nbytes, first, doubling=doubling)


def _phase(
    groups: Iterable[Sequence[int]], nbytes: float, before: Sequence[Message], *, doubling: bool
) -> list[Message]:
    found = []
    for group in groups:
        if len(group) > 1:
            messages = doubled(group, nbytes) if doubling else ring(group, nbytes)
            for message in messages:
                if not message.after:
                    message.after.extend(before)
            found += messages
    return found


def doubled(order: Sequence[int], nbytes: float) -> list[Message]:
    """An all-gather in which partners exchange all that they have, and it doubles."""
    size, distance, rows = len(order), 1, list[list[Message]]()
    while distance < size:
        row = []
        for i, rank in enumerate(order):
            message = Message(rank, order[i ^ distance], nbytes * distance / size)
            if rows:
                message.after += [rows[-1][i], rows[-1][i ^ (distance // 2)]]
            row.append(message)
        rows.append(row)
        distance *= 2
    return [message for row in rows for message in row]
