"""Which processes have ended: each has a socket that the operating system closes when it does.

Note [Presence]
A backend says that a connection is lost, and a store is silent about a key that nobody writes. Neither says
which process has ended. So each process listens on a port of its own, which it writes into the store of the
process group; one that wants to know connects: a refused connection is a process that has ended, however it
did. One that answers says whether it still has its process groups. One that does not answer may hang, or be
behind a firewall: nothing is known of it. Nothing is sent while all goes well.

A process that has left a collective by an error may end before the others ask. So it notes which ranks were
the reason, and they name those.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import threading
from collections.abc import Collection
from functools import cache
from typing import Any, Final
from weakref import WeakSet

import torch.distributed as dist
from torch.distributed import distributed_c10d

__all__ = ["announce", "has_ended", "note_lost", "reasons_of"]

#: how long an answer is waited for, in seconds
ANSWER: Final = 0.2
#: the backends whose ranks are all in this process
PRETENDED: Final = ("fake", "threaded", "thunder_ranks")
_HERE, _LEFT = b"1", b"0"
_KEY: Final = "thunder.distributed/presence"
#: machines to which there is no way
_unreachable: Final[set[str]] = set()
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


def has_ended(rank: int) -> bool:
    """Return whether a global rank is known to have ended, or to have left its process group."""
    store = distributed_c10d._get_default_store()
    if not store.check([f"{_KEY}/{rank}"]):
        return False
    host, port = json.loads(store.get(f"{_KEY}/{rank}"))
    if host in _unreachable:
        return False
    try:
        connection = socket.create_connection((host, port), ANSWER)
    except ConnectionError:
        return True
    except OSError:
        _unreachable.add(host)
        return False
    with connection:
        try:
            return connection.recv(1) in (_LEFT, b"")
        except ConnectionError:
            return True
        except TimeoutError:  # it hangs, or is slow
            return False


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
        if os.getpid() == process and dist.is_initialized() and dist.get_backend() == "gloo":
            dist.destroy_process_group()

    atexit.register(leave)


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
                connection.sendall(_HERE if dist.is_initialized() else _LEFT)
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
