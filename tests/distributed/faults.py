"""Run as a program: processes train, and something fails in one of them.

    python faults.py FOLDER FAULT SIZE RANK

The fault is in one rank, or in what all use. It prints what became of each process as JSON, by rank: its
error, the seconds from the fault to it, and a note.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import thunder
from thunder.distributed import Checkpoints, ddp, fsdp

#: after how many seconds without an answer a process is missed, and the timeout of the group
HANG, TIMEOUT = 1.0, 600.0
STEPS = 4
#: the rank with the fault
VICTIM = 1


class Network(nn.Module):
    """Two layers, and branches that read one of two others."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.first, self.left, self.right = (nn.Linear(4, 4).double() for _ in range(3))

    def forward(self, x, goes_left: bool = True):
        return (self.left if goes_left else self.right)(torch.relu(self.first(x))).sum()


class Edited(Network):
    """The same parameters with another activation: the code of one process."""

    def forward(self, x, goes_left: bool = True):
        return (self.left if goes_left else self.right)(torch.tanh(self.first(x))).sum()


class Rank:
    """A process that trains."""

    def __init__(self, rank: int, folder: Path, model: nn.Module | None = None, transform=None) -> None:
        self.rank, self.folder, self.began = rank, folder, 0.0
        model = Network() if model is None else model
        self.compiled = thunder.jit(
            model, transforms=[transform or fsdp()], executors=["torch"], hang_timeout=HANG
        )
        self.optimizer = torch.optim.AdamW(self.compiled.parameters(), lr=0.01)

    def step(self, *args) -> float:
        loss = self.compiled(torch.ones(2, 4).double() * (1 + self.rank), *args)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    def warm(self) -> None:
        """Train until programs are expected, and meet."""
        for _ in range(STEPS):
            self.step()
        dist.barrier()
        (self.folder / f"began{self.rank}").write_text(str(time.time()))


def kill(rank: int, folder: Path) -> None:
    trained = Rank(rank, folder)
    trained.warm()
    if rank == VICTIM:
        os.kill(os.getpid(), signal.SIGKILL)
    trained.step()


def stop(rank: int, folder: Path) -> None:
    """Be stopped, as by a debugger or a machine that hangs."""
    trained = Rank(rank, folder)
    trained.warm()
    if rank == VICTIM:
        os.kill(os.getpid(), signal.SIGSTOP)
    trained.step()


def stop_before_it_compiles(rank: int, folder: Path) -> None:
    trained = Rank(rank, folder)
    dist.barrier()
    (folder / f"began{rank}").write_text(str(time.time()))
    if rank == VICTIM:
        os.kill(os.getpid(), signal.SIGSTOP)
    trained.step()


def slow(rank: int, folder: Path) -> None:
    """Be slower than the others wait for an answer: a process that answers is waited for."""
    trained = Rank(rank, folder)
    if rank == VICTIM:
        time.sleep(2.5 * HANG)
    trained.warm()
    if rank == VICTIM:
        time.sleep(2.5 * HANG)
    trained.step()


def store(rank: int, folder: Path) -> None:
    """Lose the store, and then begin a program that is compared."""
    trained = Rank(rank, folder)
    trained.warm()
    if rank == 0:
        os.kill(int((folder / "store").read_text()), signal.SIGKILL)
    time.sleep(0.5)
    trained.step(False)


def code(rank: int, folder: Path) -> None:
    (folder / f"began{rank}").write_text(str(time.time()))
    Rank(rank, folder, Edited() if rank == VICTIM else Network()).step()


def weights(rank: int, folder: Path) -> None:
    (folder / f"began{rank}").write_text(str(time.time()))
    Rank(rank, folder, Network(seed=int(rank == VICTIM)), ddp(broadcast_from=None))


def modules(rank: int, folder: Path) -> None:
    """Give one process another module, to a transform that would broadcast its parameters."""
    (folder / f"began{rank}").write_text(str(time.time()))
    model = nn.Sequential(nn.Linear(4, 3 if rank == VICTIM else 4))
    Rank(rank, folder, model, ddp())


def programs(rank: int, folder: Path) -> None:
    """Compile another program late in one process."""
    trained = Rank(rank, folder)
    trained.warm()
    trained.step(rank != VICTIM)


def order(rank: int, folder: Path) -> None:
    """Run the programs that all have in another order."""
    trained = Rank(rank, folder)
    for _ in range(STEPS):
        for goes_left in (True, False):
            trained.step(goes_left)
    trained.warm()
    trained.step(rank != VICTIM)


def disk(rank: int, folder: Path) -> None:
    """Have no room on one process's disk for the second checkpoint."""
    trained = Rank(rank, folder)
    trained.warm()
    checkpoints = Checkpoints(folder / "runs")
    checkpoints.save(trained.compiled, trained.optimizer, 1)
    checkpoints.wait()
    if rank == VICTIM:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    trained.step()
    checkpoints.save(trained.compiled, trained.optimizer, 2)
    try:
        checkpoints.wait()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        dist.barrier()
        found = Checkpoints(folder / "runs").load(trained.compiled, trained.optimizer)
        (folder / f"note{rank}").write_text(f"step {found}")


def corrupted(rank: int, folder: Path) -> None:
    """Change a byte of the last checkpoint, and load."""
    trained = Rank(rank, folder)
    checkpoints = Checkpoints(folder / "runs")
    for number in (1, 2):
        trained.step()
        checkpoints.save(trained.compiled, trained.optimizer, number)
    checkpoints.wait()
    dist.barrier()
    if rank == VICTIM:
        (shard,) = (folder / "runs").glob("*2/__0_0.distcp")
        content = bytearray(shard.read_bytes())
        content[len(content) // 2] ^= 1
        shard.write_bytes(content)
    dist.barrier()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        step = checkpoints.load(trained.compiled, trained.optimizer)
    (text,) = [str(w.message) for w in caught if "passed over" in str(w.message)]
    (folder / f"note{rank}").write_text(f"step {step}: {text}")


FAULTS: dict[str, Callable[[int, Path], None]] = {
    f.__name__: f
    for f in (
        *(kill, stop, stop_before_it_compiles, slow, store, code, weights, modules, programs, order),
        *(disk, corrupted),
    )
}


def process(rank: int, size: int, folder: Path, fault: str, port: int) -> None:
    """Be one process; write what ends it."""
    torch.set_num_threads(1)
    os.dup2(os.open(folder / f"printed{rank}", os.O_WRONLY | os.O_CREAT), 2)
    seconds = timedelta(seconds=TIMEOUT)
    if port:
        shared: Any = dist.TCPStore("localhost", port, is_master=False, timeout=seconds)
    else:
        shared = dist.FileStore(str(folder / "filestore"), size)
    dist.init_process_group("gloo", store=shared, rank=rank, world_size=size, timeout=seconds)
    error = "no error"
    try:
        FAULTS[fault](rank, folder)
    except Exception as raised:
        error = f"{type(raised).__name__}: {raised}"
    began = [float(path.read_text()) for path in folder.glob("began*")]
    (folder / f"result{rank}").write_text(json.dumps([error, time.time() - max(began, default=0.0)]))


def host_store(folder: Path, port: int) -> None:
    """Host the store in a process of its own."""
    (folder / "store").write_text(str(os.getpid()))
    hosted = dist.TCPStore("localhost", port, is_master=True, wait_for_workers=False)
    (folder / "hosts").touch()
    time.sleep(TIMEOUT)
    del hosted


def begin(rank: int, size: int, folder: Path, fault: str, port: int) -> int:
    """Fork a process; return its id."""
    child = os.fork()
    if not child:
        process(rank, size, folder, fault, port)
        sys.exit()
    return child


def main(folder: Path, fault: str, size: int) -> None:
    """Fork the processes, and print what became of them."""
    port, host = 0, 0
    if fault == "store":
        with socket.socket() as free:
            free.bind(("localhost", 0))
            port = free.getsockname()[1]
        host = os.fork()
        if not host:
            host_store(folder, port)
        while not (folder / "hosts").exists():
            time.sleep(0.01)
    children = {begin(rank, size, folder, fault, port): rank for rank in range(size)}
    while children:
        child, _ = os.waitpid(-1, os.WNOHANG)
        children.pop(child, None)
        if fault.startswith("stop") and list(children.values()) == [VICTIM]:
            os.kill(next(iter(children)), signal.SIGKILL)  # the others have ended without it
        time.sleep(0 if child else 0.02)
    print(json.dumps([became(folder, rank) for rank in range(size)]))


def became(folder: Path, rank: int) -> list[object]:
    """Return the error of a process, the seconds to it, and its note."""
    result, note = folder / f"result{rank}", folder / f"note{rank}"
    error, seconds = json.loads(result.read_text()) if result.exists() else ("ended", 0.0)
    return [error, seconds, note.read_text() if note.exists() else ""]


if __name__ == "__main__":
    VICTIM = int(sys.argv[4])
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
