"""Plans Llama 3 of 8, 70 and 405 billion parameters on 1024 devices in several layouts, without a device.

    python examples/llama_plans.py [--models 8B 70B 405B] [--device h100] [--length 4096]

Nothing runs, and no parameter has memory. For each layout the table has what a process of it needs: memory at
the peak, bytes that it sends within its node and to others, and the time of a step by a roofline (see
`docs/distributed.md`), which is a lower bound. Each group of processes with its own data gets one sequence.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

import thunder
from llama import Llama, LlamaConfig
from thunder.distributed import FSDPBucketingStrategy, FSDPType, column_parallel, ddp, fsdp, row_parallel

#: layers, width, heads, hidden (Grattafiori et al., The Llama 3 Herd of Models, 2024, table 3)
MODELS: Final = {
    "8B": (32, 4096, 32, 14336),
    "70B": (80, 8192, 64, 28672),
    "405B": (126, 16384, 128, 53248),
}
COLUMNS: Final = ["*.query", "*.key", "*.value", "*.gate", "*.up"]
ROWS: Final = ["*.output", "*.down"]


@dataclass(frozen=True)
class Layout:
    """How parameters are laid out: the sizes of a mesh, its transforms, and the processes that share data."""

    mesh: Mapping[str, int]
    transforms: Callable[[Any], Sequence[thunder.Transform]]
    sharing: int = 1


def zero3(group: Any) -> Any:
    """Parameters in parts, of which those of a block are gathered together, also for the backward."""
    return fsdp(
        process_group=group,
        sharding_strategy=FSDPType.ZERO3,
        bucketing_strategy=FSDPBucketingStrategy.BLOCK,
    )


def in_parts(group: Any) -> list[thunder.Transform]:
    """Layers in parts, and the sequence between them."""
    return [
        column_parallel(target_modules=COLUMNS, process_group=group),
        row_parallel(target_modules=ROWS, process_group=group, sequence_dim=1),
    ]


LAYOUTS: Final[Mapping[str, Layout]] = {
    "ZeRO-3 of 1024": Layout({"dp": 1024}, lambda mesh: [zero3(mesh["dp"])]),
    "ZeRO-3 of 8, ddp of 128": Layout(
        {"replicas": 128, "node": 8}, lambda mesh: [zero3(mesh["node"]), ddp(process_group=mesh["replicas"])]
    ),
    "tensor of 8, ZeRO-3 of 128": Layout(
        {"dp": 128, "tp": 8}, lambda mesh: [*in_parts(mesh["tp"]), zero3(mesh["dp"])], sharing=8
    ),
}


def options(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--models", nargs="+", choices=MODELS, default=list(MODELS), help="default: all")
    add("--layouts", nargs="+", choices=LAYOUTS, default=list(LAYOUTS), help="default: all")
    add("--device", default="h100", help="a device profile (default: %(default)s)")
    add("--length", type=int, default=4096, help="tokens of a sequence (default: %(default)s)")
    return parser.parse_args(arguments)


def planned(name: str, layout: Layout, chosen: argparse.Namespace) -> Any:
    """The plan of a model in a layout."""
    layers, width, heads, hidden = MODELS[name]
    config = LlamaConfig(
        vocabulary=128256,
        context=chosen.length,
        layers=layers,
        width=width,
        heads=heads,
        groups=8,
        hidden=hidden,
        tied_head=False,
    )
    with torch.device("meta"):
        model = Llama(config).bfloat16()
        tokens = torch.zeros(1, chosen.length, dtype=torch.long)
    return thunder.plan(model, tokens, mesh=layout.mesh, transforms=layout.transforms, device=chosen.device)


def row(name: str, title: str, plan: Any, layout: Layout, chosen: argparse.Namespace, took: float) -> str:
    """A row of the table, as markdown."""
    sent = {link: sum(t.sent for t in plan.traffic if t.link == link) for link in LINKS}
    processes = math.prod(layout.mesh.values())
    tokens = chosen.length / layout.sharing / plan.seconds
    whole = f"{tokens * processes / 1e6:.2f} million"
    return (
        f"| {name} | {title} | {plan.peak / 2**30:.1f} GiB{'' if plan.fits else ' (too much)'} | "
        f"{' | '.join(f'{n / 2**30:.2f} GiB' for n in sent.values())} | {plan.seconds * 1e3:.0f} ms | "
        f"{plan.exposed * 1e3:.0f} ms | {tokens:.0f} | {whole} | {took:.0f} s |"
    )


LINKS: Final = ("within a node", "between nodes")
HEAD: Final = (
    "| model | layout | peak | sent within a node | sent between nodes | step | waiting "
    "| tokens/s of a device | of all | planned in |\n|---|---|---|---|---|---|---|---|---|---|"
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Plan each model in each layout and print the table."""
    chosen = options(arguments)
    print(HEAD)
    for name in chosen.models:
        for title in chosen.layouts:
            start = time.process_time()
            plan = planned(name, LAYOUTS[title], chosen)
            took = time.process_time() - start
            print(row(name, title, plan, LAYOUTS[title], chosen, took), flush=True)


if __name__ == "__main__":
    main()
