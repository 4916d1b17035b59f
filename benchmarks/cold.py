"""What the cold starts share: the compilers, and the command that measures each in fresh processes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from statistics import median

import torch

from measure import command_line, in_fresh_process, machine_facts, one_thread, print_table

Forward = Callable[[torch.Tensor], torch.Tensor]
Compile = Callable[[torch.nn.Module], Forward]


def eager() -> Compile:
    """Nothing: what the arithmetic itself costs."""
    return lambda model: model


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
    """torch.compile with the backend that adds AOTAutograd: functionalisation, decomposition, backward."""
    import torch._dynamo

    return lambda model: torch.compile(model, backend="aot_eager")


def torch_compile() -> Compile:
    """torch.compile as it is by default, with TorchInductor."""
    import torch._dynamo

    return lambda model: torch.compile(model)


def with_inductor(mode: str) -> Callable[[], Compile]:
    """thunder with the executor `inductor` in a mode."""

    def load() -> Compile:
        import thunder

        return lambda model: thunder.jit(model, executors=["inductor"], inductor_mode=mode)

    return load


COMPILERS: dict[str, tuple[str, Callable[[], Compile]]] = {
    "thunder": ("thunder", thunder_jit),
    "eager": ("eager", eager),
    "dynamo": ('torch.compile, "eager"', dynamo),
    "compile": ("torch.compile", torch_compile),
    "pointwise": ('thunder, inductor "pointwise"', with_inductor("pointwise")),
    "full": ('thunder, inductor "full"', with_inductor("full")),
    "aot": ('torch.compile, "aot_eager"', aot),
}


def report(script: str, ways: list[str], layers: list[int], repeats: int) -> None:
    """Prints medians, the cost of one more layer, and each way as a multiple of the first one."""
    seconds = {
        (way, depth): median(
            in_fresh_process(script, "--child", way, "--layers", str(depth)) for _ in range(repeats)
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
        rows.append((COMPILERS[way][0], *cells, f"{growth:.4f}", f"{ratio:.3g}"))
    head = [f"{depth} layers, s" for depth in layers]
    print_table(("compiler", *head, "one more layer, s", f"÷ {COMPILERS[ways[0]][0]}"), rows)


def compare(
    description: str | None,
    script: str,
    measure: Callable[[Compile, int], float],
    *,
    ways: Sequence[str],
    layers: Sequence[int],
) -> None:
    """The command line of a cold start.

    `measure` gives the CPU seconds of one compiler at one depth. It runs in a process of its own, which is
    `script` again with `--child`, and which prints the seconds as JSON.
    """
    parser = command_line(description)
    parser.add_argument("--layers", type=int, nargs="+", default=list(layers))
    parser.add_argument("--ways", nargs="+", choices=ways, default=list(ways))
    parser.add_argument("--repeats", type=int, default=3, help="processes of each (default: %(default)s)")
    parser.add_argument("--child", choices=ways, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        one_thread()
        print(json.dumps(measure(COMPILERS[arguments.child][1](), arguments.layers[0])))
    else:
        report(script, arguments.ways, arguments.layers, arguments.repeats)
