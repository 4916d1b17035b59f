"""Trains with checkpoints, so that torchrun may restart the processes, and another number of them may go on.

    torchrun --nproc-per-node=2 --max-restarts=3 examples/elastic_training.py --folder runs

A process that is lost ends the others with an error that names it; torchrun then starts all of them again,
and they go on from the last checkpoint. `--lose 5` loses rank 1 after 5 steps of the first start, to show it:
it is killed, or stopped with `--how stop`. The losses are those of a run in which nothing happens.
"""

from __future__ import annotations

import argparse
import os
import signal

import torch
import torch.distributed as dist
from torch import nn

import thunder
from thunder.distributed import Checkpoints, fsdp


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--folder", required=True, help="the folder of the checkpoints, which all processes see")
    add("--steps", type=int, default=10, help="of the whole training (default: %(default)s)")
    add("--every", type=int, default=2, help="steps between checkpoints (default: %(default)s)")
    add("--rows", type=int, default=12, help="of a batch, of all processes (default: %(default)s)")
    add("--dropout", type=float, default=0.1, help="the probability (default: %(default)s)")
    add("--lose", type=int, default=-1, help="the steps after which rank 1 is lost (default: none)")
    add("--how", choices=("kill", "stop"), default="kill", help="how it is lost (default: %(default)s)")
    add("--hang-timeout", type=float, default=60.0, help="seconds to miss a stopped process (default: 60)")
    return parser.parse_args()


def batch(step: int, rows: int) -> torch.Tensor:
    """Return this process's rows of the batch of a step, which does not depend on their number."""
    whole = torch.randn(rows, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(step))
    return whole.chunk(dist.get_world_size())[dist.get_rank()]


def lose(how: str) -> None:
    """Lose this process, unless it was restarted."""
    if dist.get_rank() == 1 and os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0":
        os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)


def main() -> None:
    """Train from the last checkpoint to the last step."""
    given = options()
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    layers = [nn.Linear(8, 16), nn.GELU(), nn.Dropout(given.dropout), nn.Linear(16, 1)]
    model = nn.Sequential(*layers).double()
    compiled = thunder.jit(model, transforms=[fsdp()], executors=["torch"], hang_timeout=given.hang_timeout)
    optimizer = torch.optim.AdamW(compiled.parameters(), lr=0.01)
    torch.manual_seed(dist.get_rank())  # each process draws its own dropout

    checkpoints = Checkpoints(given.folder)
    step = checkpoints.load(compiled, optimizer)
    while step < given.steps:
        if step == given.lose:
            lose(given.how)
        loss = compiled(batch(step, given.rows)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.all_reduce(mean := loss.detach() / dist.get_world_size())
        step += 1
        if dist.get_rank() == 0:
            print(f"step {step} loss {mean.item()!r}", flush=True)
        if step % given.every == 0:
            checkpoints.save(compiled, optimizer, step)
    checkpoints.wait()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
