"""Cold start: CPU seconds from `jit` to the first output of a litgpt GPT, each in a fresh process.

    python benchmarks/cold_start.py [--layers 1 8 16 32] [--ways thunder dynamo aot] [--repeats N]

The model is a litgpt GPT of width 16 in inference: almost no arithmetic, so what is measured is the compiler.
The libraries are imported and eager has run once before the clock starts; the output is compared.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from statistics import median
from time import process_time

import torch

from measure import command_line, in_fresh_process, machine_facts, one_thread, print_table

Compile = Callable[[torch.nn.Module], Callable[[torch.Tensor], torch.Tensor]]


def thunder_jit() -> Compile:
    """thunder with its default executors."""
    # Imported here, not above: no way pays for the libraries of another one.
    import thunder

    return lambda model: thunder.jit(model)


def dynamo() -> Compile:
    """torch.compile with the backend that runs the captured graph as it is: the cost of capture alone."""
    import torch._dynamo

    return lambda model: torch.compile(model, backend="eager")


def aot() -> Compile:
    """torch.compile with the backend that adds AOTAutograd's functionalisation and decomposition."""
    import torch._dynamo

    return lambda model: torch.compile(model, backend="aot_eager")


WAYS: dict[str, tuple[str, Callable[[], Compile]]] = {
    "thunder": ("thunder", thunder_jit),
    "dynamo": ('torch.compile, "eager"', dynamo),
    "aot": ('torch.compile, "aot_eager"', aot),
}


def gpt(layers: int) -> torch.nn.Module:
    """A litgpt GPT of the given depth, with random weights of seed 0."""
    from litgpt import GPT, Config

    torch.manual_seed(0)
    sizes = {"block_size": 64, "n_embd": 16, "n_head": 2, "padded_vocab_size": 64}
    return GPT(Config(n_layer=layers, **sizes)).eval()


@torch.no_grad()
def first_result(way: str, layers: int) -> float:
    """CPU seconds from the call that compiles to the first output."""
    one_thread()
    model, tokens = gpt(layers), torch.arange(16)[None]
    expected = model(tokens)
    compiler = WAYS[way][1]()
    start = process_time()
    output = compiler(model)(tokens)
    seconds = process_time() - start
    torch.testing.assert_close(output, expected)
    return seconds


def report(ways: list[str], layers: list[int], repeats: int) -> None:
    """Prints medians, the cost of one more layer, and each way as a multiple of the first one."""
    seconds = {
        (way, depth): median(
            in_fresh_process(__file__, "--child", way, "--layers", str(depth)) for _ in range(repeats)
        )
        for depth in layers
        for way in ways
    }
    print(machine_facts())
    deep, shallow = max(layers), min(layers)
    rows = []
    for way in ways:
        growth = (seconds[way, deep] - seconds[way, shallow]) / max(deep - shallow, 1)
        ratio = seconds[way, deep] / seconds[ways[0], deep]
        cells = [f"{seconds[way, depth]:.3f}" for depth in layers]
        rows.append((WAYS[way][0], *cells, f"{growth:.4f}", f"{ratio:.1f}"))
    head = [f"{depth} layers, s" for depth in layers]
    print_table(("compiler", *head, "one more layer, s", f"÷ {WAYS[ways[0]][0]}"), rows)


def main() -> None:
    """Reads the command line; `--child` measures one way in this process and prints it as JSON."""
    parser = command_line(__doc__)
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 8, 16, 32])
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--repeats", type=int, default=3, help="processes of each (default: %(default)s)")
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(first_result(arguments.child, arguments.layers[0])))
    else:
        report(arguments.ways, arguments.layers, arguments.repeats)


if __name__ == "__main__":
    main()
