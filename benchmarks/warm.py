"""What the warm calls share: stacks of tiny layers, and the command that times all ways of a size in turn."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping

import torch

from measure import command_line, in_fresh_process, interleaved, machine_facts, one_thread, print_table

Call = Callable[[], object]
Calls = Callable[[torch.nn.Module, torch.Tensor], dict[str, Call]]


def stack(layers: int) -> torch.nn.Module:
    """`layers` linear layers, 4 wide, with random weights of seed 0."""
    torch.manual_seed(0)
    return torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(layers)))


def times(ways: Mapping[str, Calls], layers: int, repeats: int) -> dict[str, float]:
    """Median CPU microseconds of one call, by the names that the ways give to their calls."""
    one_thread()
    model, x = stack(layers), torch.randn(4, 4)
    calls = {name: call for way in ways.values() for name, call in way(model, x).items()}
    return interleaved(calls, repeats, budget_us=5_000)


def report(results: Mapping[int, dict[str, float]], base: str) -> None:
    """Prints the times, and what thunder's ways cost beyond the one called `base`, if that was measured."""
    print(machine_facts())
    names = list(next(iter(results.values())))
    head = [f"{layers} layers, µs" for layers in results]
    print_table(("way", *head), [(name, *(f"{r[name]:.1f}" for r in results.values())) for name in names])
    ours = [name for name in names if name.startswith("thunder")]
    if base in names and ours:
        rows = [
            (f"{name}, minus {base}", *(f"{r[name] - r[base]:.1f}" for r in results.values()))
            for name in ours
        ]
        print()
        print_table(("overhead", *head), rows)


def compare(
    description: str | None, script: str, ways: Mapping[str, Calls], *, base: str, always: str = "eager"
) -> None:
    """The command line of a warm call: each size in a process of its own, all ways of a size in turn in it.

    That process is this script again with `--child`, which prints the times as JSON. The way `always` is
    measured whatever `--ways` says; `base` is the call from which the overheads are counted.
    """
    parser = command_line(description)
    optional = [way for way in ways if way != always]
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 10, 100])
    parser.add_argument("--ways", nargs="*", choices=optional, default=optional)
    parser.add_argument("--repeats", type=int, default=100, help="batches of each (default: %(default)s)")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        chosen = {way: ways[way] for way in (always, *arguments.ways)}
        print(json.dumps(times(chosen, arguments.layers[0], arguments.repeats)))
        return
    options = ("--ways", *arguments.ways, "--repeats", str(arguments.repeats))
    report(
        {n: in_fresh_process(script, "--child", "--layers", str(n), *options) for n in arguments.layers}, base
    )
