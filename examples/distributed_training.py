"""Trains the demo's Llama on several processes, in each strategy, beside one process and beside torch.

    torchrun --nproc-per-node=2 examples/distributed_training.py [--steps N] [--width N] …

Every run begins with the weights of the same seed and sees the same batches. The losses have to be those of
one process that trains on the joined batch. Steps of thunder and of torch's DistributedDataParallel, FSDP2 or
`parallelize_module` are then timed in turns, and the table has what a step of each costs.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel

import thunder
from demo import Forward, batches, loss_of, text
from llama import Attention, Llama, LlamaConfig, rotate
from step_costs import StepCosts, recorded_steps
from thunder.distributed import (
    FSDPBucketingStrategy,
    FSDPType,
    column_parallel,
    context_parallel,
    ddp,
    fsdp,
    row_parallel,
)

TOLERANCE: Final = 1e-4  # nats, of a mean loss; as in demo.py
RECORDED: Final = 3  # steps, of which the last is recorded
COLUMNS: Final = ["*.query", "*.key", "*.value", "*.gate", "*.up"]
ROWS: Final = ["*.output", "*.down"]
COLUMNS_OF_BLOCKS: Final = [
    f"blocks.*.{name}"
    for name in ("attention.query", "attention.key", "attention.value", "network.gate", "network.up")
]
ROWS_OF_BLOCKS: Final = ["blocks.*.attention.output", "blocks.*.network.down"]


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=20, help="steps whose losses are compared (default: %(default)s)")
    add("--timed", type=int, default=40, help="steps that are timed (default: %(default)s)")
    add("--batch", type=int, default=8, help="rows of all processes (default: %(default)s)")
    add("--length", type=int, default=128, help="bytes of one row (default: %(default)s)")
    add("--layers", type=int, default=4, help="transformer blocks (default: %(default)s)")
    add("--width", type=int, default=192, help="of the vectors between blocks (default: %(default)s)")
    add("--rate", type=float, default=1e-3, help="learning rate (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the weights and batches (default: %(default)s)")
    add("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES), help="default: all")
    return parser.parse_args(arguments)


# -- strategies ----------------------------------------------------------------------------------------------


def by_block(strategy: FSDPType) -> list[thunder.Transform]:
    """Parameters in parts, of which those of a block are gathered together."""
    return [fsdp(sharding_strategy=strategy, bucketing_strategy=FSDPBucketingStrategy.BLOCK, release=True)]


def torchs_ddp(model: Llama) -> nn.Module:
    """torch's DistributedDataParallel, without copies of gradients and buffers."""
    with warnings.catch_warnings(action="ignore", category=FutureWarning):  # newer torch has another name
        return DistributedDataParallel(model, broadcast_buffers=False, gradient_as_bucket_view=True)


def torchs_fsdp(model: Llama, reshard_after_forward: bool) -> nn.Module:
    """torch's FSDP2: the same blocks."""
    for block in model.blocks:
        fully_shard(block, reshard_after_forward=reshard_after_forward)
    fully_shard(model, reshard_after_forward=reshard_after_forward)
    return model


class PartOfAttention(Attention):
    """Attention with the heads that a process has: torch's layers return the part of it."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """The same as for all heads, but for the width of the result."""
        batch, length, _ = x.shape
        q, k, v = (
            layer(x).view(batch, length, -1, self.head_width).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        result: Tensor = self.output(y.transpose(1, 2).reshape(batch, length, -1))
        return result


def torchs_tensor(model: Llama) -> nn.Module:
    """torch's `parallelize_module`: the same layers in columns and rows."""
    for block in model.blocks:
        block.attention.__class__ = PartOfAttention
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan: dict[str, Any] = {name: ColwiseParallel() for name in COLUMNS_OF_BLOCKS}
    plan |= {name: RowwiseParallel() for name in ROWS_OF_BLOCKS}
    # one all-reduce for the gradients of all layers that read a value
    for name, others in (("attention", (None, None)), ("network", ())):
        whole = (Replicate(), *others)
        plan[f"blocks.*.{name}"] = PrepareModuleInput(input_layouts=whole, desired_input_layouts=whole)
    parallelize_module(model, mesh, plan)
    return model


@dataclass(frozen=True)
class Strategy:
    """How training is distributed.

    Attributes:
        transforms: thunder's.
        by_torch: what does the same in torch, to a model; None if it takes another program.
        divides_batch: whether each process gets its rows of the batch; all of them otherwise.
    """

    transforms: Callable[[], list[thunder.Transform]]
    by_torch: Callable[[Llama], nn.Module] | None = None
    divides_batch: bool = True


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "ddp": Strategy(lambda: [ddp()], torchs_ddp),
    "zero2": Strategy(lambda: by_block(FSDPType.ZERO2), lambda model: torchs_fsdp(model, False)),
    "zero3": Strategy(lambda: by_block(FSDPType.ZERO3), lambda model: torchs_fsdp(model, True)),
    "tensor": Strategy(
        lambda: [column_parallel(target_modules=COLUMNS), row_parallel(target_modules=ROWS)],
        torchs_tensor,
        divides_batch=False,
    ),
    "context": Strategy(lambda: [context_parallel(divide={"tokens": 1})], divides_batch=False),
}


# -- training ------------------------------------------------------------------------------------------------


class Run:
    """A training of one program."""

    def __init__(self, forward: Forward, parameters: Any, chosen: argparse.Namespace, divides: bool) -> None:
        self.forward, self.divides = forward, divides
        self.optimizer = torch.optim.AdamW(parameters, lr=chosen.rate)
        self.data = batches(source(), chosen.batch, chosen.length, chosen.seed)

    def step(self) -> float:
        """Train on the next batch; return the loss (nats) of this process."""
        tokens, targets = next(self.data)
        if self.divides:
            rank, size = dist.get_rank(), dist.get_world_size()
            tokens, targets = tokens.chunk(size)[rank], targets.chunk(size)[rank]
        loss = loss_of(self.forward, tokens, targets)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


@cache
def source() -> Tensor:
    """What is trained on."""
    return text()[0]


def build(chosen: argparse.Namespace) -> Llama:
    """A model with the weights of the seed."""
    torch.manual_seed(chosen.seed)
    config = LlamaConfig(
        layers=chosen.layers, context=chosen.length, width=chosen.width, hidden=chosen.width * 8 // 3 // 8 * 8
    )
    return Llama(config)


def one_process(chosen: argparse.Namespace) -> Run:
    """The training that all others have to equal."""
    model = build(chosen)
    return Run(model, model.parameters(), chosen, divides=False)


def by_thunder(strategy: Strategy, chosen: argparse.Namespace) -> Run:
    """A training by thunder's transforms."""
    compiled = thunder.jit(build(chosen), transforms=strategy.transforms())
    return Run(compiled, compiled.parameters(), chosen, strategy.divides_batch)


def by_torch(strategy: Strategy, chosen: argparse.Namespace) -> Run:
    """The same training by torch."""
    assert strategy.by_torch is not None, "this strategy has a counterpart"
    module = strategy.by_torch(build(chosen))
    return Run(module, module.parameters(), chosen, strategy.divides_batch)


# -- comparison ----------------------------------------------------------------------------------------------


def mean_over_processes(values: Sequence[float]) -> Tensor:
    """The means of all processes' values."""
    means = torch.tensor(values, dtype=torch.float64)
    dist.all_reduce(means)
    return means / dist.get_world_size()


def median_seconds(runs: Sequence[Run], count: int) -> list[float]:
    """The median time of a step of each run; they take turns, so that all meet the same machine."""
    seconds: list[list[float]] = [[] for _ in runs]
    for _ in range(count):
        for run, own in zip(runs, seconds, strict=True):
            dist.barrier()
            start = time.perf_counter()
            run.step()
            own.append(time.perf_counter() - start)
    return mean_over_processes([statistics.median(own) for own in seconds]).tolist()


def compare(name: str, chosen: argparse.Namespace, expected: Tensor) -> list[str]:
    """Train in a strategy, check the losses, and return the rows of the table."""
    strategy = STRATEGIES[name]
    makers = {"thunder": by_thunder, "torch": by_torch}
    if strategy.by_torch is None:
        del makers["torch"]
    runs, costs, differences = [], [], []
    for make in makers.values():
        run, losses, cost = recorded_steps(partial(make, strategy, chosen), Run.step, RECORDED)
        losses += [run.step() for _ in range(chosen.steps - RECORDED)]
        means = mean_over_processes(losses)
        torch.testing.assert_close(means, expected, rtol=0, atol=TOLERANCE)
        differences.append((means - expected).abs().max().item())
        runs.append(run)
        costs.append(cost)
    seconds = median_seconds(runs, chosen.timed)
    torchs_seconds = seconds[-1] if "torch" in makers else None
    return [
        row(name, *cells, torchs_seconds) for cells in zip(makers, seconds, costs, differences, strict=True)
    ]


HEAD: Final = "strategy by            step  of torch       peak       sent  calls  difference"


def row(
    name: str, who: str, seconds: float, costs: StepCosts, difference: float, torchs_seconds: float | None
) -> str:
    """A row of the table."""
    relative = f"{seconds / torchs_seconds:.2f}" if torchs_seconds is not None else "-"
    return (
        f"{name:9}{who:8}{seconds * 1e3:7.1f} ms{relative:>10}{costs.peak / 2**20:7.2f} MiB"
        f"{costs.sent / 2**20:7.2f} MiB{costs.collectives:7}{difference:12.1e}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train in each strategy and print the table."""
    chosen = options(arguments)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if chosen.steps < RECORDED:
        raise SystemExit(f"--steps={chosen.steps}: at least {RECORDED} are needed")
    reference = one_process(chosen)
    expected = torch.tensor([reference.step() for _ in range(chosen.steps)], dtype=torch.float64)
    is_first = dist.get_rank() == 0
    if is_first:
        size = sum(parameter.numel() for parameter in build(chosen).parameters())
        print(f"{size} parameters, {dist.get_world_size()} processes, gloo")
        print(HEAD)
    for name in chosen.strategies:
        for line in compare(name, chosen, expected):
            if is_first:
                print(line, flush=True)
    if is_first:
        print(f"losses of {chosen.steps} steps equal those of one process (allowed: {TOLERANCE:.0e} nats)")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
