"""What groups of processes have begun, as this process knows it, and the programs that it has compiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from .presence import PRETENDED, announce
from .process_groups import group_named, timeout_of

__all__ = [
    "HANG_TIMEOUT",
    "Alarm",
    "Running",
    "count_collective",
    "known_program",
    "known_sequence",
    "register_program",
    "register_sequence",
    "running_in",
]

#: after how many seconds without an answer a process is missed; the option `hang_timeout` has another number
HANG_TIMEOUT: Final = 60.0


class Alarm(RuntimeError):
    """What this process waits for does not come; another error says so in the user's words."""

    def __init__(self, content: dict[str, Any]) -> None:
        super().__init__(str(content))
        self.content = content


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
    #: the digests of programs whose statements this process has written into the store
    written: set[str] = field(default_factory=set)
    #: after how many seconds without an answer another process is missed; None: after the group's timeout
    hang_timeout: float | None = HANG_TIMEOUT
    #: device type → whether gloo moves tensors of it between processes
    _watched: dict[str, bool] = field(default_factory=dict)

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

    def is_watched(self, device: torch.device) -> bool:
        """Return whether a collective of tensors of a device can be left before its timeout."""
        found = self._watched.get(device.type)
        if found is None:
            found = not self.is_alone and self.can_be_seen and self.is_gloo(device)
            self._watched[device.type] = found
        return found

    @property
    def position(self) -> str:
        """Where this process is in a program, for alarms."""
        return str(self.count - 1)

    def alarm_key(self, position: str) -> str:
        """Return the key of the store with the alarm for those who wait at a position."""
        return f"thunder.distributed/{self.name}/{position}/alarm"

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

    def program_key(self, rank: int, program: str) -> str:
        """Return the key of the store with the statements of a program of a process."""
        return f"thunder.distributed/{self.name}/programs/{rank}/{program}"

    @property
    def rank(self) -> int:
        """The rank of this process in the group."""
        return dist.get_rank(self.group)


_running: WeakKeyDictionary[dist.ProcessGroup, Running] = WeakKeyDictionary()
#: digest of a sequence of collectives → the sequence
_sequences: dict[str, tuple[str, ...]] = {}
#: digest of a program → the digest of its inputs, and its statements
_programs: dict[str, tuple[str, tuple[str, ...]]] = {}


def register_sequence(digest: str, sequence: Sequence[str]) -> None:
    """Note the collectives of a program, for comparisons and errors."""
    _sequences[digest] = tuple(sequence)


def register_program(digest: str, inputs: str, statements: Sequence[str]) -> None:
    """Note the statements of a program as it was acquired.

    `inputs` is the digest of its inputs, empty if the statements of other processes may differ.
    """
    _programs[digest] = inputs, tuple(statements)


def known_sequence(digest: str) -> tuple[str, ...]:
    """Return the collectives of a program, in words for one that this process has not compiled."""
    return _sequences.get(digest, ("a program that this process has not compiled",))


def known_program(digest: str) -> tuple[str, tuple[str, ...]]:
    """Return the digest of the inputs of a program, and its statements; empty ones for no program."""
    return _programs.get(digest, ("", ()))


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
