"""Memory of a training step: bytes saved for the backward, and the highest number of bytes allocated at once.

    python benchmarks/training_memory.py [gpt | llama | mlp] [--layers 4] [--rows 4] [--length 128] [--ways …]

A step, once all is compiled, is a forward and a backward. `gpt` is a litgpt GPT with the next-token loss;
`llama` is litgpt with RMSNorm and the feed-forward part of a Llama, `mlp` that part alone (`fused_regions.py`
has both). The gradients of their results are ones.

*Saved* is what is alive between forward and backward: the storages of all tensors that the autograd graph
packs (`torch.autograd.graph.saved_tensors_hooks`), each counted once and whole however many views of it are
saved, without those of parameters, buffers and the tokens, which exist anyway.

*Peak* is read from the allocator: `torch.profiler` notes every allocation and release of the step with its
bytes, those inside kernels too; the peak is the highest sum of them. Gradients are part of it, parameters are
not. The numbers are exact: they do not depend on the machine's load and are the same in each run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterable
from itertools import accumulate
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from cold import COMPILERS, Forward
from fused_regions import GatedMLP, litgpt
from litgpt_model import gpt
from measure import command_line, in_fresh_process, one_thread, print_table

MIB = 2**20
WAYS = ("eager", "thunder", "aot", "compile", "pointwise", "full")
WORKLOADS = ("gpt", "llama", "mlp")

#: computes what a step differentiates from a model and its input
Loss = Callable[[Forward, torch.Tensor], torch.Tensor]


class Memory(NamedTuple):
    """Bytes of one training step."""

    saved: int
    peak: int


def loss_of(forward: Forward, tokens: torch.Tensor) -> torch.Tensor:
    """The mean cross entropy of each next token."""
    return F.cross_entropy(forward(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def call(forward: Forward, x: torch.Tensor) -> torch.Tensor:
    """The result of a model."""
    return forward(x)


def saved_bytes(forward: Callable[[], torch.Tensor], existing: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages that the autograd graph of a result keeps alive, without those of `existing`."""
    known = {tensor.untyped_storage().data_ptr() for tensor in existing}
    storages: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        # No storage is released while the result lives, so that an address stands for one storage.
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        result = forward()
    assert result.requires_grad, "a result without a graph saves nothing"
    return sum(storages.values())


def peak_bytes(step: Callable[[], object]) -> int:
    """The highest number of bytes that are allocated at once during a step, counted from its beginning."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as record:
        step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        record.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    memory = [event for event in events if event.get("name") == "[memory]"]
    memory.sort(key=lambda event: (event["ts"], event["args"]["Ev Idx"]))
    return max(accumulate(event["args"]["Bytes"] for event in memory), default=0)


def step_of(workload: str, arguments: argparse.Namespace) -> tuple[torch.nn.Module, torch.Tensor, Loss]:
    """The model of a workload, its input, and what follows the model in a step."""
    rows, length = arguments.rows, arguments.length
    torch.manual_seed(0)
    if workload == "gpt":
        sizes = {"width": arguments.width, "heads": arguments.heads, "context": length}
        model = gpt(arguments.layers, vocabulary=arguments.vocabulary, **sizes)
        return model, torch.randint(arguments.vocabulary, (rows, length + 1)), loss_of
    if workload == "llama":
        return litgpt(arguments.layers), torch.randint(320, (rows, length)), call
    return GatedMLP(arguments.width), torch.randn(rows * length, arguments.width), call


def measure(way: str, arguments: argparse.Namespace) -> Memory:
    """The memory of one way's second training step; the first one compiles."""
    one_thread()
    model, x, loss = step_of(arguments.workload, arguments)
    forward = COMPILERS[way][1]()(model)

    def step() -> None:
        result = loss(forward, x)
        result.backward(torch.ones_like(result))
        # The gradients stay until here, so that all of them count in the peak.
        model.zero_grad()

    step()
    existing = (*model.parameters(), *model.buffers(), x)
    return Memory(saved_bytes(lambda: loss(forward, x), existing), peak_bytes(step))


def report(arguments: argparse.Namespace) -> None:
    """Prints the bytes of each way, and as a multiple of the first one's."""
    sizes = ("layers", "width", "heads", "vocabulary", "rows", "length")
    options = [word for size in sizes for word in (f"--{size}", str(getattr(arguments, size)))]
    results = {
        way: Memory(*in_fresh_process(__file__, arguments.workload, "--child", way, *options))
        for way in arguments.ways
    }
    first = results[arguments.ways[0]]
    settings = ", ".join(f"{size} {getattr(arguments, size)}" for size in sizes)
    print(f"{arguments.workload}, torch {torch.__version__}, {settings}")
    rows = [
        (
            COMPILERS[way][0],
            f"{memory.saved / MIB:.2f}",
            f"{memory.saved / first.saved:.3f}",
            f"{memory.peak / MIB:.2f}",
            f"{memory.peak / first.peak:.3f}",
        )
        for way, memory in results.items()
    ]
    base = COMPILERS[arguments.ways[0]][0]
    print_table(("way", "saved, MiB", f"÷ {base}", "peak, MiB", f"÷ {base}"), rows)


def main() -> None:
    """Reads the command line; `--child` measures one way in this process and prints it as JSON."""
    parser = command_line(__doc__)
    parser.add_argument("workload", nargs="?", choices=WORKLOADS, default="gpt")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=512)
    parser.add_argument("--rows", type=int, default=4, help="rows of a batch (default: %(default)s)")
    parser.add_argument("--length", type=int, default=128, help="tokens of a row (default: %(default)s)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=["eager", "thunder", "aot"])
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.child, arguments)))
    else:
        report(arguments)


if __name__ == "__main__":
    main()
