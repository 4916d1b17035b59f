"""Several collectives of gloo at a time, by torch alone: `python tests/distributed/gloo_at_once.py`.

Prints how two processes end: with torch 2.13 by a corrupted heap in many runs, the fewer the busier the
machine is. It tells when thunder no longer has to let one collective of gloo arrive before the next begins.
"""

from __future__ import annotations

import os
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

IN_FLIGHT = 4
SECONDS = 15.0
SHAPES = ((3,), (3, 11), (3,), (3,), (6,), (6, 5), (3,), (3, 11), (6, 5), (4, 5), (1,))


def gather(rank: int, file: str) -> None:
    """Gather small tensors, several at a time, until the time is over."""
    dist.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    group = dist.group.WORLD
    tensors = [torch.randn(shape, dtype=torch.float64) for shape in SHAPES]
    end, is_over, rounds = time.monotonic() + SECONDS, torch.zeros(1), 0
    while not is_over.item():
        rounds += 1
        if rounds % 50 == 0:
            is_over.fill_(time.monotonic() > end)
            dist.all_reduce(is_over)
        in_flight, results = [], []
        for t in tensors:
            whole = torch.empty((2 * t.shape[0], *t.shape[1:]), dtype=t.dtype)
            in_flight.append((whole, group.allgather_into_tensor_coalesced([whole], [t])))
            del whole
            if len(in_flight) == IN_FLIGHT:
                arrived, work = in_flight.pop(0)
                work.wait()
                results.append(arrived[:-1] * 2)
                del arrived, work
        for _, work in in_flight:
            work.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        started = mp.spawn(gather, (os.path.join(folder, "group"),), nprocs=2, join=False)
        for process in started.processes:
            process.join(2 * SECONDS)
            process.kill()
            process.join()
        print("exit codes:", [process.exitcode for process in started.processes])
