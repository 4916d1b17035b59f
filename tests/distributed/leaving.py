"""Run as a program: three processes train, and the second one ends in some way at some place.

    python leaving.py FOLDER kill backward

The others leave at their first error. It prints the errors as JSON, by rank.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import thunder
from thunder.distributed import fsdp, save

SIZE = 3
#: much more than what the test waits for
SECONDS = 120


def _killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _raises() -> None:
    raise ZeroDivisionError("of the user's")


WAYS: dict[str, Callable[[], None]] = {
    "kill": _killed,
    "exit": lambda: sys.exit(3),
    "error": _raises,
    "destroy": dist.destroy_process_group,
}


def train(rank: int, folder: Path, way: str, place: str) -> None:
    """Train for three steps, of which the second process leaves the last one at a place."""
    compiled = thunder.jit(
        nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4)), transforms=[fsdp()], executors=["torch"]
    )
    optimizer = torch.optim.AdamW(compiled.parameters())

    def at(name: str) -> None:
        if rank == 1 and step == 2 and place == name:
            WAYS[way]()

    for step in range(3):
        at("forward")
        loss = compiled(torch.ones(2, 4)).sum()
        at("backward")
        loss.backward()
        at("optimizer")
        torch.nn.utils.clip_grad_norm_(compiled.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        at("save")
        if step == 2:
            save(compiled, optimizer, step, folder / "run")


def process(rank: int, folder: Path, way: str, place: str) -> None:
    """Be one process; write the error that ends it."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where Python shows the error
    store = f"file://{folder}/store"
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=SIZE, timeout=timedelta(seconds=SECONDS)
    )
    try:
        train(rank, folder, way, place)
    except Exception as error:
        (folder / f"error{rank}").write_text(f"{type(error).__name__}: {error}")
        if rank == 1:
            raise
        os._exit(1)  # which takes less time than the end of Python


def main(folder: Path, way: str, place: str) -> None:
    """Fork the processes, and print their errors."""
    torch.set_num_threads(1)
    children = []
    for rank in range(SIZE):
        child = os.fork()
        if not child:
            process(rank, folder, way, place)
            sys.exit()
        children.append(child)
    for child in children:
        os.waitpid(child, 0)
    written = [folder / f"error{rank}" for rank in range(SIZE)]
    print(json.dumps([path.read_text() if path.exists() else "" for path in written]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
