"""Trains the demo's Llama, stores its linear layers in 8 and 4 bits, and fine-tunes one of them by QLoRA.

    hatch run quantised [--steps N] [--adapt N] [--out PICTURE] …

A table and a picture compare perplexity on text that training has not seen, memory of the weights, and CPU
time of one decoded byte, all compiled by thunder. Then the weights stay in nf4, and low-rank adapters learn
another text: the licence of this project (Dettmers et al., "QLoRA", 2023). Further options are demo.py's.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

import demo
import thunder
from llama import Llama, encode
from thunder.extend import Executor
from thunder.transforms import LORATransform, QuantizeWeights
from thunder.transforms.quantization import (
    BitsAndBytesLinearQuant4bit,
    BitsAndBytesLinearQuant8bit,
    get_bitsandbytes_executor,
)

LICENCE = Path(__file__).resolve().parents[1] / "LICENSE"
STORAGES: dict[str, Callable[[], list[thunder.Transform]]] = {
    "fp32": lambda: [],
    "int8": lambda: [BitsAndBytesLinearQuant8bit()],
    "nf4": lambda: [BitsAndBytesLinearQuant4bit()],
    "nf4, double": lambda: [BitsAndBytesLinearQuant4bit(double_quantization=True)],
    "fp4": lambda: [BitsAndBytesLinearQuant4bit("fp4")],
    "int8-dynamic": lambda: [QuantizeWeights("int8-dynamic", smallest=0)],
    "int4": lambda: [QuantizeWeights("int4", group_size=32, smallest=0)],
}


@dataclass(frozen=True)
class Measured:
    """A storage: perplexity per byte, bytes of the linear layers, and CPU time of one decoded byte (s).

    `agreement` is how often the most likely byte is that of the first storage.
    """

    name: str
    perplexity: float
    agreement: float
    weight_bytes: int
    seconds: float


def options(arguments: Sequence[str] | None = None) -> tuple[argparse.Namespace, argparse.Namespace]:
    """The command line of this program, and that of the demo."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--adapt", type=int, default=60, help="steps of QLoRA (default: %(default)s)")
    parser.add_argument("--rank", type=int, default=8, help="of the adapters (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=30, help="timed calls of each (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path("quantised.png"), help="the picture")
    own, rest = parser.parse_known_args(arguments)
    return own, demo.options(rest)


def compiled(model: nn.Module, transforms: list[thunder.Transform]) -> thunder.ThunderModule:
    """The model, compiled with the products of quantised weights before the default executors."""
    first: list[Executor | str] = [get_bitsandbytes_executor(), "onednn"]
    executors = [*first, *thunder.get_default_executors()]
    module: thunder.ThunderModule = thunder.jit(model, transforms=transforms, executors=executors)
    return module


def linear_bytes(module: thunder.ThunderModule) -> int:
    """The bytes of the weights of all linear layers but the head, as they are stored."""
    layers = {n for n, m in module.named_modules() if isinstance(m, nn.Linear) and n != "head"}
    state = module.state_dict().items()
    return sum(t.nbytes for n, t in state if n.partition(".weight")[0] in layers)


def cpu_seconds(forward: Callable[[Tensor], Tensor], tokens: Tensor) -> float:
    """CPU time of one call."""
    start = time.process_time()
    forward(tokens)
    return time.process_time() - start


def most_likely(forward: Callable[[Tensor], Tensor], source: Tensor, chosen: argparse.Namespace) -> Tensor:
    """The most likely byte after each one of some batches that training has not seen."""
    data = demo.batches(source, chosen.batch, chosen.length, seed=chosen.seed)
    return torch.stack([forward(next(data)[0]).argmax(-1) for _ in range(8)])


@torch.no_grad()
def measured(model: Llama, held_out: Tensor, chosen: argparse.Namespace, repeats: int) -> list[Measured]:
    """The model in each storage; decoding is timed in turn, so that all meet the same load."""
    forwards = {name: compiled(model, make()) for name, make in STORAGES.items()}
    losses = {name: demo.held_out_loss(f, held_out, chosen) for name, f in forwards.items()}
    guesses = {name: most_likely(f, held_out, chosen) for name, f in forwards.items()}
    first = next(iter(guesses.values()))
    agreement = {name: (guess == first).double().mean().item() for name, guess in guesses.items()}
    byte = held_out[:1][None]
    for forward in forwards.values():
        forward(byte)
    turns = [{n: cpu_seconds(f, byte) for n, f in forwards.items()} for _ in range(repeats)]
    return [
        Measured(
            n,
            math.exp(losses[n]),
            agreement[n],
            linear_bytes(f),
            statistics.median(turn[n] for turn in turns),
        )
        for n, f in forwards.items()
    ]


def print_table(rows: list[Measured]) -> None:
    """Print a line for each storage."""
    first = rows[0]
    print(f"{'':12} {'perplexity':>10} {'same byte':>9}", end=" ")
    print(f"{'weights':>9} {'of fp32':>8} {'one byte':>9} {'of fp32':>8}")
    for row in rows:
        memory, speed = row.weight_bytes / first.weight_bytes, row.seconds / first.seconds
        print(f"{row.name:12} {row.perplexity:10.4f} {row.agreement:9.1%}", end=" ")
        print(f"{row.weight_bytes / 1e3:6.0f} kB {memory:8.3f} {row.seconds * 1e3:6.2f} ms {speed:8.2f}")


def draw(rows: list[Measured], losses: list[float], path: Path) -> None:
    """Draw the table and the losses of the fine-tuning, and write the picture to `path`."""
    figure = Figure(figsize=(14, 4), layout="constrained")
    names = [row.name for row in rows]
    perplexity, memory, speed, tuning = figure.subplots(1, 4)
    perplexity.plot(names, [row.perplexity for row in rows], "o", color="C0")
    for row in rows:
        label = f"{row.perplexity:.3f}"
        perplexity.annotate(
            label, (row.name, row.perplexity), (0, 6), textcoords="offset points", ha="center"
        )
    perplexity.set(title="perplexity per byte, held-out text")
    perplexity.margins(y=0.2)
    memory.bar(names, [row.weight_bytes / rows[0].weight_bytes for row in rows], color="C1")
    memory.set(title="weights of linear layers, of fp32")
    speed.bar(names, [row.seconds * 1e3 for row in rows], color="C2")
    speed.set(title="one decoded byte, CPU ms")
    means = [statistics.mean(losses[max(0, i - 9) : i + 1]) for i in range(len(losses))]
    tuning.plot(range(1, len(losses) + 1), losses, color="C3", alpha=0.3)
    tuning.plot(range(1, len(losses) + 1), means, color="C3", label="mean of 10 steps")
    tuning.legend(frameon=False)
    tuning.set(title="QLoRA on another text", xlabel="step", ylabel="nats per byte")
    for axes in (perplexity, memory, speed, tuning):
        axes.spines[["top", "right"]].set_visible(False)
        axes.tick_params(axis="x", labelsize=7)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)


def adapt(model: Llama, own: argparse.Namespace, chosen: argparse.Namespace) -> list[float]:
    """Train adapters of the weights in nf4 on the licence; return the loss of each step in nats."""
    forward = compiled(model, [LORATransform(r=own.rank, lora_alpha=16), BitsAndBytesLinearQuant4bit()])
    adapters = [p for p in forward.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(adapters, lr=3e-3)
    data = demo.batches(encode(LICENCE.read_text(encoding="utf-8")), chosen.batch, chosen.length, chosen.seed)
    losses = []
    for _ in range(own.adapt):
        loss = demo.loss_of(forward, *next(data))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    trained = sum(p.numel() for p in adapters)
    first, last = statistics.mean(losses[:10]), statistics.mean(losses[-10:])
    print(f"\nQLoRA, {trained} parameters on nf4: {first:.3f} → {last:.3f} nats per byte")
    return losses


def main(arguments: Sequence[str] | None = None) -> tuple[list[Measured], list[float]]:
    """Trains, compares, fine-tunes, draws."""
    own, chosen = options(arguments)
    source, held_out = demo.text()
    model = demo.build(chosen)
    demo.train("fp32", model, thunder.jit(model), source, chosen)
    model.requires_grad_(False).eval()

    rows = measured(model, held_out, chosen, own.repeats)
    print_table(rows)
    example = compiled(model, [BitsAndBytesLinearQuant4bit()])
    example(held_out[:1][None])
    for tensor in thunder.explain(example).unchanged:
        print(f"as it is: {tensor}")
    losses = adapt(model, own, chosen)
    draw(rows, losses, own.out)
    print(f"picture: {own.out.resolve()}")
    return rows, losses


if __name__ == "__main__":
    main()
