"""Which processes have ended: each has a socket that the operating system closes when it does.

Note [Presence]
A backend says that a connection is lost, and a store is silent about a key that nobody writes. Neither says
which process has ended. So each process listens on a port of its own, which it writes into the store of the
process group; one that wants to know connects: a refused connection is a process that has ended, however it
did. One that answers says whether it still has its process groups, and which programs it has begun. One that
does not answer may be stopped, or slow for a moment. Of one that cannot be connected to nothing is known:
there may be a firewall. Nothing is sent while all goes well.

A process that has left a collective by an error may end before the others ask. So it notes which ranks were
the reason, and they name those.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

import torch.distributed as dist
from torch.distributed import distributed_c10d

__all__ = ["Answer", "abandon", "announce", "ask", "has_ended", "note_begun", "note_lost", "reasons_of"]

#: how long an answer is waited for, in seconds
ANSWER: Final = 0.2
#: the backends whose ranks are all in this process
PRETENDED: Final = ("fake", "threaded", "thunder_ranks")
_HERE, _LEFT = b"1", b"0"
_KEY: Final = "thunder.distributed/presence"
#: how long the end of a process may take that has abandoned a collective, in seconds
ENDING: Final = 5.0
#: machines to which there is no way
_unreachable: Final[set[str]] = set()
#: machines that were connected to
_reached: Final[set[str]] = set()
#: default group → name of a group → the number of the last program that was begun in it, and the program
_begun: Final[WeakKeyDictionary[Any, dict[str, tuple[int, str]]]] = WeakKeyDictionary()
#: the default groups in whose stores this process is announced
_announced: Final[WeakSet[Any]] = WeakSet()


def announce() -> None:
    """Let the other processes of the default group see when this one ends."""
    world = dist.group.WORLD
    if world is None or world in _announced:
        return
    _announced.add(world)
    if dist.get_world_size() > 1 and dist.get_backend() not in PRETENDED:
        place = json.dumps([_own_address(), _port(os.getpid())])
        distributed_c10d._get_default_store().set(f"{_KEY}/{dist.get_rank()}", place)
        _leave_at_exit(os.getpid())


@dataclass(frozen=True)
class Answer:
    """What another process answers; nothing of it is known if all is False."""

    has_ended: bool = False
    #: its machine has taken the connection, and it has not answered
    is_silent: bool = False
    #: group → the number of the last program that it has begun in it, and the program
    begun: dict[str, tuple[int, str]] = field(default_factory=dict)


def has_ended(rank: int) -> bool:
    """Return whether a global rank is known to have ended, or to have left its process group."""
    return ask(rank).has_ended


def ask(rank: int) -> Answer:
    """Ask a global rank how it is."""
    store = distributed_c10d._get_default_store()
    if not store.check([f"{_KEY}/{rank}"]):
        return Answer()
    host, port = json.loads(store.get(f"{_KEY}/{rank}"))
    if host in _unreachable:
        return Answer()
    try:
        connection = socket.create_connection((host, port), ANSWER)
    except ConnectionError:
        return Answer(has_ended=True)
    except OSError:
        if host in _reached:  # what waits to be accepted by a stopped process is limited
            return Answer(is_silent=True)
        _unreachable.add(host)
        return Answer()
    _reached.add(host)
    with connection, connection.makefile("rb") as answer:
        try:
            text = answer.read()
        except ConnectionError:
            return Answer(has_ended=True)
        except TimeoutError:  # it is stopped, or slow
            return Answer(is_silent=True)
    if text[:1] in (_LEFT, b""):
        return Answer(has_ended=True)
    return Answer(begun={name: (number, event) for name, (number, event) in json.loads(text[1:]).items()})


def note_begun(group: str, number: int, event: str) -> None:
    """Note which program this process has begun in a group, for those who ask."""
    _begun.setdefault(dist.group.WORLD, {})[group] = number, event


def note_lost(rank: int, lost: Collection[int]) -> None:
    """Note that a global rank leaves a collective because of others; none if it does not know of whom."""
    distributed_c10d._get_default_store().set(f"{_KEY}/{rank}/lost", json.dumps(sorted(lost)))


def reasons_of(rank: int) -> list[int] | None:
    """Return because of which ranks another one has left a collective; None if it has not."""
    store = distributed_c10d._get_default_store()
    if not store.check([f"{_KEY}/{rank}/lost"]):
        return None
    lost: list[int] = json.loads(store.get(f"{_KEY}/{rank}/lost"))
    return lost


@cache
def _leave_at_exit(process: int) -> None:
    """Close the connections of gloo when a program ends: Python may take seconds to end after that."""

    def leave() -> None:
        if _abandoned:
            _end()
        if os.getpid() == process and dist.is_initialized() and dist.get_backend() == "gloo":
            dist.destroy_process_group()

    atexit.register(leave)


#: whether this process has left a collective that cannot arrive
_abandoned: Final[list[bool]] = []


def abandon() -> None:
    """Note that this process has left a collective that does not arrive.

    A thread of gloo still waits in it. Python would wait for that when the program ends, and torchrun for the
    process. So the process ends without that, with status 1, as one with an error does.
    """
    if not _abandoned:
        _abandoned.append(True)
        threading.Thread(target=_end_after_main, name="thunder end", daemon=True).start()


def _end_after_main() -> None:
    threading.main_thread().join()
    time.sleep(ENDING)  # the functions of atexit run meanwhile, unless a save waits for a collective
    _end()


def _end() -> None:
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(1)


@cache
def _port(process: int) -> int:
    """Listen, in a thread that answers, and return the port; a fork of the process listens anew."""
    listening = socket.create_server(("", 0), backlog=128)
    if hasattr(os, "register_at_fork"):  # POSIX
        os.register_at_fork(after_in_child=listening.close)
    threading.Thread(target=_answer, args=(listening,), name="thunder presence", daemon=True).start()
    port: int = listening.getsockname()[1]
    return port


def _answer(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return  # it was closed
        with connection:
            try:
                world = dist.group.WORLD
                begun = json.dumps({} if world is None else _begun.get(world, {})).encode()
                connection.sendall(_LEFT if world is None else _HERE + begun)
            except OSError:
                continue  # who asked has gone


def _own_address() -> str:
    """Return the address of this machine as the host of the store sees it, if there is one."""
    host = os.environ.get("MASTER_ADDR", "localhost")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((host, 1))  # sends nothing: it chooses the interface
            address: str = probe.getsockname()[0]
        except OSError:
            return "127.0.0.1"
        return address
