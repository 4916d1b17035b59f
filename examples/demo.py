"""Trains a small Llama on Python's own documentation, in eager and compiled by thunder, and compares the two.

    hatch run demo [--steps N] [--batch N] [--layers N] [--out PICTURE] …

The training loop is the ordinary one; `thunder.jit(model)` is the only line that thunder adds to it. Both
runs start from the same seed and see the same batches, so they have to show the same losses.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm import tqdm

import thunder
from curves import Curve, assert_equal, draw, largest_difference
from llama import Llama, LlamaConfig, decode, encode

Forward = Callable[[Tensor], Tensor]
TEMPERATURE = 0.7  # of the sample
COMPARED_STEPS = 50
TOLERANCE = 1e-4  # nats; noise of 1e-7 in every element of every gradient makes a difference of about 1e-6


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--steps", type=int, default=500, help="optimizer steps (default: %(default)s)")
    add("--batch", type=int, default=8, help="rows of one micro-batch (default: %(default)s)")
    add("--accumulate", type=int, default=2, help="micro-batches of one step (default: %(default)s)")
    add("--length", type=int, default=128, help="bytes of one row (default: %(default)s)")
    add("--layers", type=int, default=4, help="transformer blocks (default: %(default)s)")
    add("--width", type=int, default=LlamaConfig.width, help="features of a token (default: %(default)s)")
    add("--untied", action="store_true", help="a head with weights of its own")
    add("--rate", type=float, default=3e-3, help="highest learning rate (default: %(default)s)")
    add("--warmup", type=int, default=30, help="steps of warm-up (default: %(default)s)")
    add("--clip", type=float, default=1.0, help="highest norm of the gradient (default: %(default)s)")
    add("--sample", type=int, default=300, help="bytes to generate (default: %(default)s)")
    add("--seed", type=int, default=0, help="of the weights, batches and sample (default: %(default)s)")
    add("--out", type=Path, default=Path("demo.png"), help="the picture (default: %(default)s)")
    add("--save", type=Path, help="write the trained weights, which serve.py --weights reads")
    add("--traces", action="store_true", help="print the forward and the backward that thunder runs")
    return parser.parse_args(arguments)


def text() -> tuple[Tensor, Tensor]:
    """The language reference that `help()` shows, as bytes: nine tenths to train on, the rest held out."""
    everything = encode("\n\n".join(topics.values()))
    cut = len(everything) * 9 // 10
    return everything[:cut], everything[cut:]


def batches(source: Tensor, rows: int, length: int, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless pairs of tokens and the tokens that follow them, both `(rows, length)`, from random places."""
    generator = torch.Generator().manual_seed(seed)
    while True:
        starts = torch.randint(len(source) - length, (rows, 1), generator=generator)
        window = source[starts + torch.arange(length + 1)]
        yield window[:, :-1], window[:, 1:]


def rate_factor(step: int, warmup: int, steps: int) -> float:
    """A linear warm-up to 1, then half a cosine down to 0.1 (Loshchilov and Hutter, "SGDR", 2017)."""
    if step < warmup:
        return (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    return 0.1 + 0.45 * (1 + math.cos(math.pi * progress))


def loss_of(forward: Forward, tokens: Tensor, targets: Tensor) -> Tensor:
    """The mean cross entropy of the next byte, in nats."""
    return F.cross_entropy(forward(tokens).flatten(0, 1), targets.flatten())


def build(chosen: argparse.Namespace) -> Llama:
    """A model with the weights of the seed."""
    torch.manual_seed(chosen.seed)
    context = max(chosen.length, LlamaConfig.context)
    sizes = {"layers": chosen.layers, "width": chosen.width, "context": context}
    return Llama(LlamaConfig(**sizes, tied_head=not chosen.untied))


def train(name: str, model: nn.Module, forward: Forward, source: Tensor, chosen: argparse.Namespace) -> Curve:
    """Trains the parameters of `model` through `forward`, which is the model or what was compiled from it."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=chosen.rate, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: rate_factor(step, chosen.warmup, chosen.steps)
    )
    data = batches(source, chosen.batch, chosen.length, chosen.seed)
    curve = Curve(name)
    with tqdm(total=chosen.steps, desc=f"{name:7}", unit="step") as bar:
        for _ in range(chosen.steps):
            start, total = time.perf_counter(), 0.0
            for _ in range(chosen.accumulate):
                loss = loss_of(forward, *next(data)) / chosen.accumulate
                loss.backward()
                total += loss.item()
            nn.utils.clip_grad_norm_(model.parameters(), chosen.clip)
            optimizer.step()
            optimizer.zero_grad()
            schedule.step()
            curve.add(total, time.perf_counter() - start)
            speed = tokens_of_step(chosen) / curve.seconds[-1]
            bar.set_postfix_str(f"loss {total:.3f}, {speed:.0f} tokens/s", refresh=False)
            bar.update()
    return curve


def tokens_of_step(chosen: argparse.Namespace) -> int:
    """The bytes that one optimizer step learns from."""
    tokens: int = chosen.batch * chosen.length * chosen.accumulate
    return tokens


@torch.no_grad()
def held_out_loss(forward: Forward, source: Tensor, chosen: argparse.Namespace, count: int = 8) -> float:
    """The mean loss on `count` batches that training has not seen."""
    data = batches(source, chosen.batch, chosen.length, seed=chosen.seed)
    return sum(loss_of(forward, *next(data)).item() for _ in range(count)) / count


@torch.no_grad()
def generate(forward: Forward, prompt: Tensor, chosen: argparse.Namespace) -> Tensor:
    """The prompt and `chosen.sample` bytes more.

    The model always sees a window of the same length, so that one compiled program serves every position:
    what stands right of the last byte cannot reach it, because attention is causal.
    """
    generator = torch.Generator().manual_seed(chosen.seed)
    tokens = prompt
    for _ in range(chosen.sample):
        seen = tokens[-chosen.length :]
        window = F.pad(seen, (0, chosen.length - len(seen)))[None]
        logits = forward(window)[0, len(seen) - 1] / TEMPERATURE
        following = torch.multinomial(logits.softmax(dim=-1), 1, generator=generator)
        tokens = torch.cat((tokens, following))
    return tokens


def print_table(runs: list[tuple[Curve, Forward]], held_out: Tensor, chosen: argparse.Namespace) -> None:
    """Losses and times, a line for each run; the first step of a compiled run includes compiling."""
    head = ("last loss", "held out", "first step", "median step", "tokens/s")
    print(" " * 7, *(f"{cell:>11}" for cell in head))
    for curve, forward in runs:
        unseen = held_out_loss(forward, held_out, chosen)
        speed = tokens_of_step(chosen) / curve.median_seconds
        first, step = (f"{seconds * 1e3:8.1f} ms" for seconds in (curve.seconds[0], curve.median_seconds))
        print(f"{curve.name:7} {curve.losses[-1]:11.3f} {unseen:11.3f} {first} {step} {speed:11.0f}")


def main(arguments: Sequence[str] | None = None) -> None:
    """Trains twice, compares, draws, generates."""
    chosen = options(arguments)
    source, held_out = text()
    model, reference = build(chosen), build(chosen)
    compiled = thunder.jit(model)

    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"{parameters} parameters, {len(source)} bytes of text, {tokens_of_step(chosen)} in each step")
    eager = train("eager", reference, reference, source, chosen)
    jitted = train("thunder", model, compiled, source, chosen)
    if chosen.save is not None:
        torch.save(model.state_dict(), chosen.save)
    if chosen.traces:
        print(thunder.last_traces(compiled)[-1], thunder.last_backward_traces(compiled)[-1], sep="\n\n")
    draw([eager, jitted], chosen.out)
    print(f"picture: {chosen.out.resolve()}")

    compared = min(COMPARED_STEPS, chosen.steps)
    assert_equal(jitted, eager, steps=compared, tolerance=TOLERANCE)
    difference = largest_difference(jitted, eager, steps=compared)
    print(f"losses of the first {compared} steps: thunder equals eager", end=" ")
    print(f"(largest difference {difference:.1e}, allowed {TOLERANCE:.0e})\n")

    print_table([(eager, reference), (jitted, compiled)], held_out, chosen)

    sample = generate(compiled, encode("The "), chosen)
    print(f"\ncompiled {thunder.cache_misses(compiled)} times: to train, to evaluate, to generate\n")
    print(decode(sample))


if __name__ == "__main__":
    main()
