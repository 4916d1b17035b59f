"""Compiles a small Llama, runs it on real text, compares it with eager, and shows what was compiled.

hatch run inference [--layers N] [--untied] [--repeats N]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

import thunder
from llama import Llama, LlamaConfig, encode

TEXT = Path(__file__).resolve().parents[1] / "LICENSE"


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=2, help="transformer blocks (default: %(default)s)")
    parser.add_argument("--untied", action="store_true", help="a head with weights of its own")
    parser.add_argument("--repeats", type=int, default=30, help="timed calls of each (default: %(default)s)")
    return parser.parse_args()


def batch_of_text(batch: int, length: int) -> Tensor:
    """The first `batch * length` bytes of the licence, as rows of tokens `(batch, length)`."""
    return encode(TEXT.read_text(encoding="utf-8"))[: batch * length].view(batch, length)


def milliseconds(function: Callable[[], object]) -> float:
    """Wall-clock time of one call."""
    start = time.perf_counter()
    function()
    return (time.perf_counter() - start) * 1e3


def medians(first: Callable[[], object], second: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Median milliseconds of two functions called in turn, so that both meet the same load."""
    pairs = [(milliseconds(first), milliseconds(second)) for _ in range(repeats)]
    return statistics.median(a for a, _ in pairs), statistics.median(b for _, b in pairs)


@torch.no_grad()
def main() -> None:
    """Builds, compiles, compares, prints, times."""
    arguments = options()
    torch.manual_seed(0)
    model = Llama(LlamaConfig(layers=arguments.layers, tied_head=not arguments.untied)).eval()
    tokens = batch_of_text(batch=2, length=128)

    compiled = thunder.jit(model)
    expected = model(tokens)
    start = time.perf_counter()
    logits = compiled(tokens)
    first_call = (time.perf_counter() - start) * 1e3
    torch.testing.assert_close(logits, expected, rtol=0, atol=0)

    print(thunder.last_prologue_traces(compiled)[-1])
    print()
    print(thunder.last_traces(compiled)[-1])

    eager, warm = medians(lambda: model(tokens), lambda: compiled(tokens), arguments.repeats)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(f"\n{parameters} parameters, tokens {tuple(tokens.shape)}: compiled equals eager, bit by bit")
    print(f"eager               {eager:8.2f} ms   (median of {arguments.repeats} calls)")
    print(f"thunder             {warm:8.2f} ms   (median of {arguments.repeats} calls, in turn with eager)")
    print(f"thunder, first call {first_call:8.2f} ms   (compiles, then runs)")


if __name__ == "__main__":
    main()
