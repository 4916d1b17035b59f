"""Trains the demo's Llama on several processes, in each strategy, beside one process and beside torch.

    torchrun --nproc-per-node=2 examples/distributed_training.py [--steps N] [--width N] …

Every run begins with the weights of the same seed and sees the same batches. The losses have to be those of
one process that trains on the joined batch. Steps of thunder and of torch's DistributedDataParallel, FSDP2,
`parallelize_module`, `context_parallel` or pipelining (`distributed_by_torch.py`) are then timed in turns.
The table has what a step costs: CPU time and time that passes as means over the processes, memory and
bytes of the process that has the most.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import torch
import torch.distributed as dist
from torch import Tensor, nn

import distributed_by_torch as by_torch
import thunder
from demo import batches, loss_of, text
from distributed_by_torch import Training, of_forward
from llama import Llama, LlamaConfig
from step_costs import StepCosts, recorded_steps
from thunder.distributed import (
    FSDPBucketingStrategy,
    FSDPType,
    column_parallel,
    context_parallel,
    ddp,
    fsdp,
    pipeline,
    row_parallel,
)

TOLERANCE: Final = 1e-4  # nats, of a mean loss; as in demo.py
RECORDED: Final = 3  # steps, of which the last is recorded
COLUMNS: Final = ["*.query", "*.key", "*.value", "*.gate", "*.up"]
ROWS: Final = ["*.output", "*.down"]


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=20, help="steps whose losses are compared (default: %(default)s)")
    add("--timed", type=int, default=40, help="steps that are timed (default: %(default)s)")
    add("--batch", type=int, default=8, help="rows of all processes (default: %(default)s)")
    add("--microbatches", type=int, default=4, help="parts of a batch in pipelines (default: %(default)s)")
    add("--length", type=int, default=128, help="bytes of one row (default: %(default)s)")
    add("--layers", type=int, default=4, help="transformer blocks (default: %(default)s)")
    add("--width", type=int, default=192, help="of the vectors between blocks (default: %(default)s)")
    add("--rate", type=float, default=1e-3, help="learning rate (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the weights and batches (default: %(default)s)")
    add("--strategies", nargs="+", choices=STRATEGIES, default=list(STRATEGIES), help="default: all")
    return parser.parse_args(arguments)


# -- strategies ----------------------------------------------------------------------------------------------


def with_transforms(model: nn.Module, *transforms: thunder.Transform) -> Training:
    """Return the training of a compiled module."""
    return of_forward(thunder.jit(model, transforms=transforms))


def with_fsdp(model: Llama, strategy: FSDPType) -> Training:
    """Train with parameters in parts, of which those of a block are gathered together."""
    blocks = FSDPBucketingStrategy.BLOCK
    return with_transforms(model, fsdp(sharding_strategy=strategy, bucketing_strategy=blocks, release=True))


class Loss(nn.Module):
    """The loss of a model as a module: what `context_parallel` divides."""

    def __init__(self, model: Llama) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        """The mean cross entropy, in nats."""
        return loss_of(self.model, tokens, targets)


def with_context(model: Llama) -> Training:
    """Train with parts of sequences."""
    compiled = thunder.jit(Loss(model), transforms=[context_parallel(divide={"tokens": 1, "targets": 1})])

    def gradients(tokens: Tensor, targets: Tensor) -> Tensor:
        loss: Tensor = compiled(tokens, targets)
        loss.backward()
        return loss.detach()

    return Training(gradients, compiled.parameters())


def with_pipeline(model: Llama, schedule: str, microbatches: int) -> Training:
    """Train with stages in processes: those of torch's."""
    blocks = by_torch.first_blocks(len(model.blocks), dist.get_world_size())
    stages = [f"blocks.{block}" for block in blocks[1:]]
    step = pipeline(model, loss_of, microbatches=microbatches, stages=stages, schedule=schedule)
    return Training(step, model.parameters())


Maker = Callable[[Llama, argparse.Namespace], Training]


@dataclass(frozen=True)
class Strategy:
    """How training is distributed.

    Attributes:
        by_thunder: what prepares a model for it.
        by_torch: what does the same in torch.
        divides_batch: whether each process gets its rows of the batch; all of them otherwise.
        tied: whether the head has the weights of the embedding.
    """

    by_thunder: Maker
    by_torch: Maker
    divides_batch: bool = True
    tied: bool = True


def of_pipeline(schedule: str) -> Strategy:
    """Return a strategy of pipelines. Torch's have no weights that two stages share."""
    return Strategy(
        lambda model, chosen: with_pipeline(model, schedule, chosen.microbatches),
        lambda model, chosen: by_torch.with_pipeline(model, schedule, chosen.microbatches),
        divides_batch=False,
        tied=False,
    )


STRATEGIES: Final[Mapping[str, Strategy]] = {
    "ddp": Strategy(
        lambda model, _: with_transforms(model, ddp()), lambda model, _: by_torch.with_ddp(model)
    ),
    "zero2": Strategy(
        lambda model, _: with_fsdp(model, FSDPType.ZERO2),
        lambda model, _: by_torch.with_fsdp(model, reshard_after_forward=False),
    ),
    "zero3": Strategy(
        lambda model, _: with_fsdp(model, FSDPType.ZERO3),
        lambda model, _: by_torch.with_fsdp(model, reshard_after_forward=True),
    ),
    "tensor": Strategy(
        lambda model, _: with_transforms(
            model, column_parallel(target_modules=COLUMNS), row_parallel(target_modules=ROWS)
        ),
        lambda model, _: by_torch.with_tensor(model),
        divides_batch=False,
    ),
    "context": Strategy(
        lambda model, _: with_context(model),
        lambda model, _: by_torch.with_context(model),
        divides_batch=False,
    ),
    "gpipe": of_pipeline("gpipe"),
    "1f1b": of_pipeline("1f1b"),
}


# -- training ------------------------------------------------------------------------------------------------


class Run:
    """A training of one program."""

    def __init__(self, training: Training, chosen: argparse.Namespace, divides: bool) -> None:
        self.gradients, self.divides = training.gradients, divides
        self.optimizer = torch.optim.AdamW(training.parameters, lr=chosen.rate)
        self.data = batches(source(), chosen.batch, chosen.length, chosen.seed)

    def step(self) -> float:
        """Train on the next batch; return the loss (nats) of this process."""
        tokens, targets = next(self.data)
        if self.divides:
            rank, size = dist.get_rank(), dist.get_world_size()
            tokens, targets = tokens.chunk(size)[rank], targets.chunk(size)[rank]
        loss = self.gradients(tokens, targets)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


@cache
def source() -> Tensor:
    """What is trained on."""
    return text()[0]


def build(chosen: argparse.Namespace, tied: bool) -> Llama:
    """A model with the weights of the seed."""
    torch.manual_seed(chosen.seed)
    hidden = chosen.width * 8 // 3 // 8 * 8
    sizes = {"layers": chosen.layers, "context": chosen.length, "width": chosen.width, "hidden": hidden}
    return Llama(LlamaConfig(**sizes, tied_head=tied))


def expected_losses(chosen: argparse.Namespace, tied: bool) -> Tensor:
    """The losses of one process, which all trainings have to equal."""
    run = Run(of_forward(build(chosen, tied)), chosen, divides=False)
    return torch.tensor([run.step() for _ in range(chosen.steps)], dtype=torch.float64)


def prepared(make: Maker, strategy: Strategy, chosen: argparse.Namespace) -> Run:
    """A training in a strategy."""
    return Run(make(build(chosen, strategy.tied), chosen), chosen, strategy.divides_batch)


# -- comparison ----------------------------------------------------------------------------------------------


def over_processes(values: Iterable[float], op: Any = dist.ReduceOp.AVG) -> Tensor:
    """The means, or the largest, of all processes' values."""
    numbers = torch.tensor(list(values), dtype=torch.float64)
    dist.all_reduce(numbers, dist.ReduceOp.SUM if op == dist.ReduceOp.AVG else op)
    return numbers / dist.get_world_size() if op == dist.ReduceOp.AVG else numbers


@dataclass(frozen=True)
class Seconds:
    """What a step took: the CPU time of a process with all its threads, and the time that passed."""

    cpu: float
    passed: float


def median_seconds(runs: Sequence[Run], count: int) -> list[Seconds]:
    """The median times of a step of each run; they take turns, so that all meet the same machine."""
    cpu: list[list[float]] = [[] for _ in runs]
    passed: list[list[float]] = [[] for _ in runs]
    for number in range(count):
        turns = list(zip(runs, cpu, passed, strict=True))
        for run, own_cpu, own_passed in turns if number % 2 else reversed(turns):
            dist.barrier()
            start, cpu_start = time.perf_counter(), time.process_time()
            run.step()
            own_cpu.append(time.process_time() - cpu_start)
            own_passed.append(time.perf_counter() - start)
    medians = over_processes(statistics.median(own) for own in (*cpu, *passed)).tolist()
    return [Seconds(*pair) for pair in zip(medians[: len(runs)], medians[len(runs) :], strict=True)]


def compare(name: str, chosen: argparse.Namespace, expected: Tensor) -> list[str]:
    """Train in a strategy, check the losses, and return the rows of the table."""
    strategy = STRATEGIES[name]
    makers = {"thunder": strategy.by_thunder, "torch": strategy.by_torch}
    runs, costs, differences = [], [], []
    for make in makers.values():
        run, losses, cost = recorded_steps(partial(prepared, make, strategy, chosen), Run.step, RECORDED)
        losses += [run.step() for _ in range(chosen.steps - RECORDED)]
        means = over_processes(losses)
        torch.testing.assert_close(means, expected, rtol=0, atol=TOLERANCE)
        differences.append((means - expected).abs().max().item())
        runs.append(run)
        largest = over_processes((cost.sent, cost.collectives, cost.peak), dist.ReduceOp.MAX)
        costs.append(StepCosts(*map(int, largest.tolist())))
    seconds = median_seconds(runs, chosen.timed)
    return [row(name, *cells, seconds[-1]) for cells in zip(makers, seconds, costs, differences, strict=True)]


HEAD: Final = (
    "strategy by           CPU  of torch     passed  of torch       peak         sent  calls  difference"
)


def row(name: str, who: str, own: Seconds, costs: StepCosts, difference: float, torchs: Seconds) -> str:
    """A row of the table."""
    return (
        f"{name:9}{who:8}{own.cpu * 1e3:6.1f} ms{own.cpu / torchs.cpu:>10.2f}"
        f"{own.passed * 1e3:8.1f} ms{own.passed / torchs.passed:>10.2f}{costs.peak / 2**20:7.2f} MiB"
        f"{costs.sent / 2**20:9.4f} MiB{costs.collectives:7}{difference:12.1e}"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Train in each strategy and print the table."""
    chosen = options(arguments)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    if chosen.steps < RECORDED:
        raise SystemExit(f"--steps={chosen.steps}: at least {RECORDED} are needed")
    tied = {STRATEGIES[name].tied for name in chosen.strategies}
    expected = {is_tied: expected_losses(chosen, is_tied) for is_tied in sorted(tied)}
    is_first = dist.get_rank() == 0
    if is_first:
        size = sum(parameter.numel() for parameter in build(chosen, tied=True).parameters())
        print(f"{size} parameters, {dist.get_world_size()} processes, gloo")
        print(HEAD)
    for name in chosen.strategies:
        for line in compare(name, chosen, expected[STRATEGIES[name].tied]):
            if is_first:
                print(line, flush=True)
    if is_first:
        print(f"losses of {chosen.steps} steps equal those of one process (allowed: {TOLERANCE:.0e} nats)")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
