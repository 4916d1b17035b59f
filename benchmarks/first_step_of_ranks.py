"""What the first step of each rank costs, beside that of one process.

    python benchmarks/first_step_of_ranks.py [--layers 8] [--ranks 4] [--runs 3]

A transformer of width 64 by the executor `torch`, one thread: seconds of CPU of a process from `thunder.jit`
to the end of the first step with its optimizer, of all threads. Imports are not counted. Ranks are processes
of gloo. Of each layout there are three starts: each rank compiles; with a new cache of programs
(thunder-store) one compiles, and the others find its program; with the same cache again all find it. Figures
are the mean of the ranks and the most expensive one, the least of several runs each, in seconds and in parts
of what one process needs that compiles.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # which optimizers import
import torch.distributed as dist
from torch import nn

import thunder
from thunder.base.text_tables import aligned
from thunder.distributed import column_parallel, ddp, fsdp, row_parallel

WIDTH, HEADS, LENGTH, VOCABULARY = 64, 4, 32, 128


class Block(nn.Module):
    """Attention and a perceptron."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.other = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        q, k, v = (f(y).view(*x.shape[:2], HEADS, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(x.shape))
        z: torch.Tensor = self.down(nn.functional.gelu(self.up(self.other(x))))
        return x + z


class Model(nn.Module):
    """A language model that returns its loss."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        scores = self.head(x[:, :-1]).flatten(0, 1)
        return nn.functional.cross_entropy(scores, tokens[:, 1:].flatten())


#: layout → its transforms; None for one process
LAYOUTS: dict[str, Callable[[], list[Any]] | None] = {
    "one process": None,
    "ddp": lambda: [ddp()],
    "fsdp": lambda: [fsdp()],
    "tensor parallel": lambda: [
        column_parallel(target_modules=["*.q", "*.k", "*.v", "*.up"]),
        row_parallel(target_modules=["*.out", "*.down"]),
    ],
}


def first_step(rank: int, size: int, layout: str, layers: int, folder: Path, cache: str | None) -> None:
    """Be one process; write its seconds of CPU."""
    torch.set_num_threads(1)
    make = LAYOUTS[layout]
    if make is not None:
        dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    torch.manual_seed(0)
    model, tokens = Model(layers), torch.randint(0, VOCABULARY, (2, LENGTH))
    before = time.process_time()
    kept: dict[str, Any] = {} if cache is None else {"program_cache": cache}
    compiled = thunder.jit(model, transforms=[] if make is None else make(), executors=["torch"], **kept)
    optimizer = torch.optim.AdamW(compiled.parameters())
    compiled(tokens).backward()
    optimizer.step()
    (folder / str(rank)).write_text(json.dumps(time.process_time() - before))


def measured(layout: str, ranks: int, layers: int, cache: str | None = None) -> list[float]:
    """Return the seconds of CPU of each process of a layout."""
    size = 1 if LAYOUTS[layout] is None else ranks
    with tempfile.TemporaryDirectory() as folder:
        children = []
        for rank in range(size):
            child = os.fork()
            if not child:
                first_step(rank, size, layout, layers, Path(folder), cache)
                os._exit(0)
            children.append(child)
        for child in children:
            os.waitpid(child, 0)
        return [json.loads((Path(folder) / str(rank)).read_text()) for rank in range(size)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name, default in (("layers", 8), ("ranks", 4), ("runs", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    import_module("thunder_store.program_cache")  # as the first use of a cache does
    alone = 0.0
    rows: list[tuple[str, ...]] = [("layout", "start", "mean of ranks, s", "of one", "most, s", "of one")]
    for layout in LAYOUTS:
        starts: dict[str, list[list[float]]] = {"each compiles": [], "one compiles": [], "all find it": []}
        for _ in range(given.runs):
            with tempfile.TemporaryDirectory() as cache:
                for start, folder in zip(starts, (None, cache, cache), strict=True):
                    starts[start].append(measured(layout, given.ranks, given.layers, folder))
        for start, runs in starts.items():
            mean, most = min(sum(ranks) / len(ranks) for ranks in runs), min(map(max, runs))
            alone = alone or most
            figures = (mean, mean / alone, most, most / alone)
            rows.append((layout, start, *(f"{figure:.2f}" for figure in figures)))
    print("\n".join(aligned(rows)))


if __name__ == "__main__":
    main()
