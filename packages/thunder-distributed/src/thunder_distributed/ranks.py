"""`thunder.distributed.run_ranks`: the programs of all ranks with true values, in one process.

Each rank is a thread with a process group of its own, by the threaded process group of torch's tests. So a
program is what it is under torchrun: it reads its rank, makes meshes, compiles, trains.

Note [Turns]
One rank runs at a time: the others wait for their turn, or for other ranks in a collective or the store. A
rank gives its turn away when it begins to wait, and takes its random generators with it (those of the CPU and
of `random`), so that it draws what it would draw in a process of its own. Seeds, breakpoints and printed
lines of ranks are therefore not mixed, and a run is as repeatable as one of processes.
"""

from __future__ import annotations

import contextvars
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from types import FunctionType
from typing import Any, Final, TypeVar

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Store
from torch.distributed import distributed_c10d
from torch.testing._internal.distributed import multi_threaded_pg as threaded

from thunder.core.errors import InvalidArgument

from .disagreements import ProcessMissing
from .gradient_synchronization import begin_rank

__all__ = ["run_ranks"]

R = TypeVar("R")

BACKEND: Final = "thunder_ranks"
#: how often it is looked whether ranks wait for each other forever, in seconds
INTERVAL: Final = 0.05


def run_ranks(program: Callable[[], R], size: int, *, timeout: float = 60.0) -> list[R]:
    """Run a program as each of `size` ranks, all of them in this process, and return their results by rank.

    `program` is what a process runs after `init_process_group`: `torch.distributed` tells it its rank. One
    rank runs at a time, until it waits for others (Note [Turns]), on the CPU. Global variables are shared.
    What a rank has compiled cannot be called after the program has ended.

    Args:
        timeout: after how many seconds in which all ranks wait the run ends.

    Raises the first error of a rank, with a note of its rank; ProcessMissing if ranks wait for one that has
    ended or waits for something else; InvalidArgument if a process group is initialised already.
    """
    if isinstance(size, bool) or not isinstance(size, int) or size < 1:
        raise InvalidArgument(f"size={size!r} is not a number of ranks")
    if dist.is_initialized():
        raise InvalidArgument(
            "run_ranks makes the process groups of all ranks, and one is initialised already",
            hint="Call it in a process that torchrun has not started, before init_process_group.",
        )
    turns = _Turns()
    seconds = timedelta(seconds=timeout)
    arguments = {"world_size": size, "store": _Store(turns, seconds), "timeout": seconds}
    with _isolated_threads(), _generators_restored():
        ranks = [_Rank(rank, program, turns, arguments) for rank in range(size)]
        try:
            for rank in ranks:
                rank.thread.start()
            waiting = _wait_for(ranks, turns, timeout)
        finally:
            turns.end()
            for rank in ranks:
                rank.thread.join()
            threaded.ProcessLocalGroup.reset()
    if turns.errors:
        raise turns.errors[0]
    if waiting:
        raise ProcessMissing(
            f"ranks wait for each other: {'; '.join(waiting)}",
            found={"timeout": f"{timeout:g} s", "ended": [r.rank for r in ranks if r.results]},
            hint="Each rank has to run the same collectives in the same order.",
        )
    return [rank.results[0] for rank in ranks]


def _wait_for(ranks: Sequence[_Rank], turns: _Turns, timeout: float) -> list[str]:
    """Wait until all ranks have ended, or one by an error; return what ranks wait in forever."""
    seen, since = turns.count, time.monotonic()
    while not turns.errors and (running := [rank for rank in ranks if rank.thread.is_alive()]):
        running[0].thread.join(INTERVAL)
        if turns.is_taken or turns.count != seen:
            seen, since = turns.count, time.monotonic()
        elif time.monotonic() - since > timeout:
            return [f"rank {rank} in {what}" for rank, what in sorted(turns.waiting.items())]
    return []


@contextmanager
def _isolated_threads() -> Iterator[None]:
    """Give each thread its own process groups; undo what an initialisation does to the hook of errors."""
    hook = sys.excepthook
    isolate = torch._C._distributed_c10d._set_thread_isolation_mode  # type: ignore[attr-defined]
    threaded._install_threaded_pg()
    isolate(True)
    try:
        yield
    finally:
        sys.excepthook = hook
        isolate(False)
        threaded._uninstall_threaded_pg()


def _generators() -> tuple[torch.Tensor, Any]:
    return torch.get_rng_state(), random.getstate()


def _set_generators(states: tuple[torch.Tensor, Any]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])


@contextmanager
def _generators_restored() -> Iterator[None]:
    states = _generators()
    try:
        yield
    finally:
        _set_generators(states)


class _Turns:
    """Which rank runs: the one that has the lock (Note [Turns])."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._own = threading.local()
        self._initial = _generators()
        #: notified when the store has changed
        self.changed = threading.Condition()
        #: how often a turn was taken
        self.count = 0
        #: rank → what it waits in
        self.waiting: dict[int, str] = {}
        self.errors: list[BaseException] = []
        #: group, sending rank, receiving rank → what is sent, and what is received, and has no other side yet
        self.messages: dict[tuple[str, int, int], tuple[list[_Message], list[_Message]]] = {}
        self.is_over = False

    @property
    def is_taken(self) -> bool:
        """Whether a rank runs."""
        return self._lock.locked()

    @contextmanager
    def turn(self, rank: int) -> Iterator[None]:
        """Run as a rank, in its thread."""
        self._own.rank = rank
        self._take()
        try:
            yield
        finally:
            self._give()

    @contextmanager
    def others_turn(self, what: str) -> Iterator[None]:
        """Let others run while this rank waits; within it already, there is nothing to give away."""
        if not getattr(self._own, "has_turn", False):
            yield
            return
        self.waiting[self._own.rank] = what
        self._give()
        try:
            yield
        finally:
            self._take()
            del self.waiting[self._own.rank]

    def end(self) -> None:
        """Let all that wait in collectives and the store leave."""
        self.is_over = True
        threaded.ProcessLocalGroup.exception_handle(None)
        with self.changed:
            self.changed.notify_all()

    def _take(self) -> None:
        self._lock.acquire()
        self._own.has_turn = True
        self.count += 1
        _set_generators(getattr(self._own, "states", self._initial))

    def _give(self) -> None:
        self._own.states = _generators()
        self._own.has_turn = False
        self._lock.release()


_current: contextvars.ContextVar[_Turns] = contextvars.ContextVar("thunder_distributed_turns")


class _Rank:
    """A thread that is one rank."""

    def __init__(
        self, rank: int, program: Callable[[], Any], turns: _Turns, arguments: dict[str, Any]
    ) -> None:
        self.rank, self.program, self.turns, self.arguments = rank, program, turns, arguments
        #: the result of the program, when it has ended
        self.results: list[Any] = []
        run = contextvars.copy_context().run
        self.thread = threading.Thread(target=run, args=(self._run,), name=f"rank {rank}", daemon=True)

    def _run(self) -> None:
        _current.set(self.turns)  # in the context of this thread
        begin_rank()
        with self.turns.turn(self.rank):
            try:
                dist.init_process_group(BACKEND, rank=self.rank, **self.arguments)
                try:
                    self.results.append(self.program())
                finally:
                    dist.destroy_process_group()
            except SystemExit:  # of a collective that was left because the run is over
                if not self.turns.is_over:
                    raise
            except BaseException as error:
                if not self.turns.is_over:
                    error.add_note(f"on rank {self.rank} of {self.arguments['world_size']}")
                    self.turns.errors.append(error)
                self.turns.end()


# -- the store and the groups of all ranks -------------------------------------------------------------------


class _Store(Store):
    """A store that all ranks share, whose waiting rank gives its turn away."""

    def __init__(self, turns: _Turns, timeout: timedelta) -> None:
        super().__init__()
        self._turns, self._timeout = turns, timeout
        self._values: dict[str, bytes] = {}

    def set(self, key: str, value: bytes) -> None:  # type: ignore[override]  # torch passes bytes
        with self._turns.changed:
            self._values[key] = value
            self._turns.changed.notify_all()

    def get(self, key: str) -> bytes:
        self.wait([key])
        return self._values[key]

    def add(self, key: str, amount: int) -> int:
        value = int(self._values.get(key, b"0")) + amount
        self.set(key, str(value).encode())
        return value

    def check(self, keys: list[str]) -> bool:
        return all(key in self._values for key in keys)

    def delete_key(self, key: str) -> bool:
        return self._values.pop(key, None) is not None

    def wait(self, keys: list[str], timeout: timedelta | None = None) -> None:
        if self.check(keys):
            return
        seconds = (self._timeout if timeout is None else timeout).total_seconds()
        with self._turns.others_turn(f"the store, for {', '.join(keys)}"), self._turns.changed:
            self._turns.changed.wait_for(lambda: self.check(keys) or self._turns.is_over, seconds)
        if self.check(keys):
            return
        if self._turns.is_over:
            sys.exit("the run is over")
        raise dist.DistStoreError(f"no rank has set {', '.join(keys)} within {seconds:g} s")


class _Group(threaded.ProcessLocalGroup):
    """A group of ranks, of which one that waits gives its turn away."""

    def __init__(self, rank: int, size: int) -> None:
        super().__init__(rank, size)  # type: ignore[no-untyped-call]
        self.turns = _current.get()

    def getBackendName(self) -> str:
        return BACKEND

    def send(self, tensors: Sequence[torch.Tensor], dst: int, tag: int) -> _Message:
        """Send to a rank of the group; the result waits until that has received it."""
        return _Message(self.turns, (self.pg_name, self._rank, dst), tensors[0], sends=True)

    def recv(self, tensors: Sequence[torch.Tensor], src: int, tag: int) -> _Message:
        """Receive from a rank of the group; the result waits until that has sent."""
        return _Message(self.turns, (self.pg_name, src, self._rank), tensors[0], sends=False)


class _Message(dist.Work):
    """A message between two ranks on its way. Messages from one rank to another keep their order.

    There are no buffers: a rank that waits for what it sends waits until the other one receives it.
    """

    def __init__(
        self,
        turns: _Turns,
        route: tuple[str, int, int],
        tensor: torch.Tensor,
        *,
        sends: bool,
    ) -> None:
        super().__init__()
        self._turns, self._route, self._tensor, self._is_over = turns, route, tensor, False
        sending, receiving = turns.messages.setdefault(route, ([], []))
        (sending if sends else receiving).append(self)
        if sending and receiving:
            first, second = sending.pop(0), receiving.pop(0)
            second._tensor.copy_(first._tensor)
            with turns.changed:
                first._is_over = second._is_over = True
                turns.changed.notify_all()

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the message has arrived."""
        if not self._is_over:
            _, source, target = self._route
            what = f"a message from {source} to {target}"
            with self._turns.others_turn(what), self._turns.changed:
                self._turns.changed.wait_for(lambda: self._is_over or self._turns.is_over)
            if not self._is_over:
                sys.exit("the run is over")
        return True


def _collective(name: str, inherited: Callable[..., Any]) -> Callable[..., Any]:
    def collective(self: _Group, *args: Any, **kwargs: Any) -> Any:
        with self.turns.others_turn(name):
            return inherited(self, *args, **kwargs)

    return collective


#: methods that are not collectives
_KEPT: Final = ("size", "getBackendName")

for _name, _inherited in vars(threaded.ProcessLocalGroup).items():
    if isinstance(_inherited, FunctionType) and not _name.startswith("__") and _name not in _KEPT:
        setattr(_Group, _name, _collective(_name, _inherited))


def _new_group(store: Store, rank: int, size: int, timeout: timedelta) -> _Group:
    group = _Group(rank, size)
    distributed_c10d._store_based_barrier(rank, store, "", size, timeout)  # type: ignore[arg-type]
    return group


dist.Backend.register_backend(BACKEND, _new_group, devices=["cpu", "cuda"])
