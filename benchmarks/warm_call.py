"""Warm call: CPU microseconds of one call of a compiled stack of tiny linear layers, in inference.

    python benchmarks/warm_call.py [--layers 1 10 100] [--ways thunder compile] [--repeats N]

The layers are 4 wide, so what is measured is what stands around the arithmetic. "bare" is the function that
thunder generated, called on the values that its prologue returned; the overhead of a way is its time minus
that. Each size is measured in a process of its own; all ways of a size are timed in turn in that process.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable

import torch

from measure import command_line, in_fresh_process, interleaved, machine_facts, one_thread, print_table

Call = Callable[[], object]


def stack(layers: int) -> torch.nn.Module:
    """`layers` linear layers, 4 wide, with random weights of seed 0."""
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers))).eval()


def thunder_calls(model: torch.nn.Module, x: torch.Tensor) -> dict[str, Call]:
    """thunder fully guarded, with a frozen model, in "same input" mode; the bare generated function."""
    # Imported here, not above: a run without this way needs no thunder.
    import thunder

    guarded, frozen = thunder.jit(model), thunder.jit(model, frozen=True)
    promised = thunder.jit(model, cache="same input")
    expected = model(x)
    for compiled in (guarded, frozen, promised):
        torch.testing.assert_close(compiled(x), expected)
    statistics = thunder.compile_stats(guarded)
    assert statistics is not None, "what jit returns has statistics"
    entry = statistics.interpreter_cache[-1]
    inputs, _ = entry.prologue_fn(x)
    computation = entry.computation_fn
    return {
        "thunder": lambda: guarded(x),
        "thunder, frozen": lambda: frozen(x),
        'thunder, "same input"': lambda: promised(x),
        "bare": lambda: computation(*inputs),
    }


def compile_calls(model: torch.nn.Module, x: torch.Tensor) -> dict[str, Call]:
    """torch.compile with its default backend."""
    compiled = torch.compile(model)
    torch.testing.assert_close(compiled(x), model(x))
    return {"torch.compile": lambda: compiled(x)}


WAYS = {"thunder": thunder_calls, "compile": compile_calls}


@torch.no_grad()
def times(layers: int, ways: list[str], repeats: int) -> dict[str, float]:
    """Median CPU microseconds of one call, by way."""
    one_thread()
    model, x = stack(layers), torch.randn(4, 4)
    calls: dict[str, Call] = {"eager": lambda: model(x)}
    for way in ways:
        calls |= WAYS[way](model, x)
    return interleaved(calls, repeats, budget_us=5_000)


def report(layers: list[int], ways: list[str], repeats: int) -> None:
    """Prints the times and, where the bare function was measured, what each way costs beyond it."""
    options = ("--ways", *ways, "--repeats", str(repeats))
    results = {n: in_fresh_process(__file__, "--child", "--layers", str(n), *options) for n in layers}
    print(machine_facts())
    names = list(results[layers[0]])
    head = [f"{n} layers, µs" for n in layers]
    print_table(("way", *head), [(name, *(f"{results[n][name]:.1f}" for n in layers)) for name in names])
    if "bare" in names:
        rows = [
            (f"{name}, minus bare", *(f"{results[n][name] - results[n]['bare']:.1f}" for n in layers))
            for name in names
            if name.startswith("thunder")
        ]
        print()
        print_table(("overhead", *head), rows)


def main() -> None:
    """Reads the command line; `--child` measures one size in this process and prints it as JSON."""
    parser = command_line(__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--ways", nargs="*", choices=WAYS, default=list(WAYS))
    parser.add_argument("--repeats", type=int, default=100, help="batches of each (default: %(default)s)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(times(arguments.layers[0], arguments.ways, arguments.repeats)))
    else:
        report(arguments.layers, arguments.ways, arguments.repeats)


if __name__ == "__main__":
    main()
