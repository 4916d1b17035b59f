"""The agreement of all processes on the next program, whenever it is not the one that they expect.

Processes whose programs communicate in another order wait for each other forever, or add gradients of
different parameters. Before a program communicates, it says so (`begin`).

Note [Expected programs]
The processes of a group have begun the same programs so far. So they have the same expectation: the program
that followed the last few, or the last one, when these last came in this order. Who begins the expected
program goes on at once. Who begins another one writes it into the store of `torch.distributed`, and waits
until all have written the same. In a training loop that is at the beginning alone:

    forward   backward   forward   backward   forward   backward
    compared  compared   compared  expected   expected  expected   …

If one process begins another program than the rest, it waits in the store, and the rest in a collective that
it does not take part in: no wrong value is computed. Both have their errors when the timeout is over
(`lost_processes`). A program that was left by an error before its last collective is part of the expectation.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from thunder.core.errors import UserError

from .presence import PRETENDED, announce, has_ended, note_lost
from .process_groups import group_named, timeout_of

__all__ = [
    "ProcessMissing",
    "ProgramsDiffer",
    "Running",
    "arrives",
    "begin",
    "count_collective",
    "differing",
    "grace_of",
    "known_sequence",
    "register_sequence",
    "running_in",
]

#: the number of programs that an expectation is based on
CONTEXT: Final = 8
#: the most expectations of a group; then all are forgotten, in each process at the same program
EXPECTATIONS: Final = 4096
#: how often it is looked whether a process that is waited for has ended, in seconds
INTERVAL: Final = 0.25
#: the number of collectives that an error shows before and after the first difference
SHOWN: Final = 10


class ProgramsDiffer(UserError, RuntimeError):
    """Two processes have begun programs with different collectives."""


class ProcessMissing(UserError, RuntimeError):
    """A process has not begun a program, or not taken part in a collective, within the timeout."""


@dataclass
class Running:
    """A record of what a group of processes has begun, as this process knows it."""

    name: str
    #: whether there is no other process to agree with
    is_alone: bool
    #: the number of programs that were begun, and of attempts that failed
    count: int = 0
    #: the number of communications outside of programs
    others: int = 0
    #: the digest of the running program
    digest: str = ""
    #: the number of collectives that it has issued, and that it has
    issued: int = 0
    length: int = 0
    #: whether it is the expected one, and was not compared
    is_expected: bool = False
    recent: tuple[str, ...] = ()
    expected: dict[tuple[str, ...], str] = field(default_factory=dict)

    @property
    def group(self) -> dist.ProcessGroup:
        """The group, which nothing here keeps alive: when it is destroyed its connections are closed."""
        return group_named(self.name)

    @property
    def can_be_seen(self) -> bool:
        """Whether other processes are, and not threads of this one."""
        return dist.get_backend(self.group) not in PRETENDED

    def is_gloo(self, device: torch.device) -> bool:
        """Whether gloo moves the tensors of a device."""
        return f"{device.type}:gloo" in dist.get_backend_config(self.group)

    @property
    def timeout(self) -> float:
        """After how many seconds a process is missed."""
        return timeout_of(self.group)

    @property
    def key(self) -> str:
        """The key of the store below which the next comparison takes place."""
        return self.key_of(self.count)

    def key_of(self, number: int) -> str:
        """Return the key below which the comparison of a program took place, by its number."""
        return f"thunder.distributed/{self.name}/{number}"

    @property
    def rank(self) -> int:
        """The rank of this process in the group."""
        return dist.get_rank(self.group)


_running: WeakKeyDictionary[dist.ProcessGroup, Running] = WeakKeyDictionary()
#: digest of a sequence of collectives → the sequence
_sequences: dict[str, tuple[str, ...]] = {}


def register_sequence(digest: str, sequence: Sequence[str]) -> None:
    """Note the collectives of a program, for comparisons and errors."""
    _sequences[digest] = tuple(sequence)


def known_sequence(digest: str) -> tuple[str, ...]:
    """Return the collectives of a program of this process."""
    return _sequences[digest]


def running_in(name: str) -> Running:
    """Return what the group of a name has begun."""
    group = group_named(name)
    running = _running.get(group)
    if running is None:
        announce()
        is_alone = dist.get_backend(group) == "fake" or dist.get_world_size(group) == 1
        running = _running[group] = Running(name, is_alone)
    return running


def count_collective(running: Running) -> None:
    """Note that the running program issues a collective."""
    running.issued += 1


def begin(name: str, digest: str) -> None:
    """Begin a program in a group; compare it with those of the others unless it is the expected one.

    Raises ProgramsDiffer with both sequences, and ProcessMissing with the rank of a process that begins no
    program within the timeout of the process group.
    """
    running = running_in(name)
    if running.is_alone:
        return
    event = digest
    if running.issued != running.length:
        event += f" after {running.issued} of {running.length} collectives of {running.digest}"
    is_expected = _expected(running) == event
    try:
        if not is_expected:
            _compare(running, event, _sequences[digest])
    finally:
        running.count += 1
    if len(running.expected) >= EXPECTATIONS:
        running.expected.clear()
    for start in range(len(running.recent)):
        running.expected[running.recent[start:]] = event
    running.is_expected = is_expected
    running.recent = (*running.recent, event)[-CONTEXT:]
    running.digest, running.issued, running.length = digest, 0, len(_sequences[digest])


def _expected(running: Running) -> str | None:
    """Return the program that followed the most of the last programs when they last came in this order."""
    for start in range(len(running.recent)):
        expected = running.expected.get(running.recent[start:])
        if expected is not None:
            return expected
    return None


def grace_of(timeout: float) -> float:
    """Return how many seconds longer than the timeout a process waits for the reports of others."""
    return min(5.0, timeout / 2)


# -- the comparison ------------------------------------------------------------------------------------------


def _compare(running: Running, event: str, sequence: Sequence[str]) -> None:
    """Write a program; the first process of the group compares, the others read its verdict."""
    store = distributed_c10d._get_default_store()
    key, rank, timeout = running.key, running.rank, running.timeout
    store.set(f"{key}/{rank}", json.dumps([event, sequence]))
    if rank == 0:
        verdict = _verdict(store, running, event, sequence)
        store.set(f"{key}/verdict", json.dumps(verdict))
    elif _arrives_from(running, 0, f"{key}/verdict", timeout + 2 * grace_of(timeout)):
        verdict = json.loads(store.get(f"{key}/verdict"))
    else:
        verdict = _absent(store, running, 0, sequence)
    ranks = dist.get_process_group_ranks(running.group)
    if "missing" in verdict:
        missing = ranks[verdict["missing"]]
        note_lost(ranks[rank], [missing])
        state = {"ended": "yes"} if has_ended(missing) else {"timeout": f"{timeout:g} s"}
        raise ProcessMissing(
            f"rank {missing} has not begun a program that this process has begun",
            found={**state, "collectives": _shown(sequence)},
            hint="Each process has to call the module equally often, and with gradients or without. Look at "
            "the output of that rank: it may have raised an error or have ended.",
        )
    if "differs" in verdict:
        raise differing(
            ranks[verdict["with"]], verdict["first"], ranks[verdict["differs"]], verdict["second"]
        )


def _verdict(store: Any, running: Running, event: str, sequence: Sequence[str]) -> dict[str, Any]:
    """Compare the programs of all processes with that of the first one."""
    deadline = time.monotonic() + running.timeout
    for other in range(1, dist.get_world_size(running.group)):
        key = f"{running.key}/{other}"
        if not _arrives_from(running, other, key, max(deadline - time.monotonic(), 0.001)):
            return _absent(store, running, other, sequence)
        begun, theirs = json.loads(store.get(key))
        if begun != event:
            return {
                "with": 0,
                "first": [*_left(event), *sequence],
                "differs": other,
                "second": [*_left(begun), *theirs],
            }
    return {}


def _absent(store: Any, running: Running, other: int, sequence: Sequence[str]) -> dict[str, Any]:
    """Return the verdict on a process that has not written its program: it may have begun the expected one.

    Then it waits in a collective, and reports that when its timeout is over.
    """
    key = f"{running.key}/failed/{other}"
    if _arrives_from(running, other, key, grace_of(running.timeout)):
        theirs = json.loads(store.get(key))
        return {"with": running.rank, "first": list(sequence), "differs": other, "second": theirs}
    return {"missing": other}


def _left(event: str) -> list[str]:
    """Return how an event is shown before the collectives, if it is not the program alone."""
    _, _, left = event.partition(" after ")
    return [f"(after {left.rpartition(' of ')[0]} of the program before)"] if left else []


def _arrives_from(running: Running, other: int, key: str, seconds: float) -> bool:
    """Return whether a process of the group writes a key within a time; at once if it has ended without."""
    store = distributed_c10d._get_default_store()
    rank, deadline = dist.get_process_group_ranks(running.group)[other], time.monotonic() + seconds
    while running.can_be_seen and time.monotonic() + INTERVAL < deadline:
        if arrives(store, key, INTERVAL):
            return True
        if has_ended(rank):
            return bool(store.check([key]))
    return arrives(store, key, max(deadline - time.monotonic(), 0.001))


def arrives(store: Any, key: str, seconds: float) -> bool:
    """Return whether a key is written within a time, by a store that can be reached."""
    try:
        store.wait([key], timedelta(seconds=seconds))
    except RuntimeError:  # that of a timeout is of another class for each kind of store
        return False
    return True


def differing(rank: int, first: Sequence[str], other: int, second: Sequence[str]) -> ProgramsDiffer:
    """Return the error about the collectives of two global ranks."""
    pairs = zip(first, second, strict=False)
    shorter = min(len(first), len(second))
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    return ProgramsDiffer(
        f"ranks {rank} and {other} have begun programs with other collectives",
        found={f"rank {rank}": _shown(first, at), f"rank {other}": _shown(second, at)},
        hint="Each process has to run the same program: the same parameters, in the same order, and "
        "branches that do not depend on the rank.",
    )


def _shown(sequence: Sequence[str], at: int = 0) -> str:
    """Return a sequence as text, of which only the part around an index is shown if it is long."""
    start, end = max(at - SHOWN, 0), at + SHOWN
    lines = list(sequence[start:end])
    if start:
        lines.insert(0, f"… {start} others …")
    if end < len(sequence):
        lines.append(f"… {len(sequence) - end} more …")
    return "; ".join(lines) or "none"
