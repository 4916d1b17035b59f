"""What part of a GPU's memory bandwidth kernels reach: generated ones, the library's, and those of others.

    python benchmarks/kernel_bandwidth.py [--rows 4096] [--width 8192] [--dtype bfloat16] [--device cuda]

Each operation runs forward, and forward with backward, in eager, by `torch.compile`, by thunder with the
executors `triton_kernels` and `triton`, and by Liger Kernel where it is installed and has the operation. The
results of each way are compared with eager's first. Counted are the bytes that must move: each argument is
read once and each result written once; a backward reads the arguments and the cotangents, and writes the
gradients. So a way may reach less than the device's limit by moving more, and never more than the limit.
The last table has the highest memory in use during a loss of a linear layer, whose logits are the largest
tensors.

Times are medians of `triton.testing.do_bench`, which clears the cache between runs; on a CPU, of calls in
turn. The limit is the `bandwidth` of the device's profile (`thunder.plugins.DeviceProfile`).
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter

import torch
from torch import Tensor
from torch.nn import functional as F

import thunder
from thunder.extend import known_profiles
from thunder_benchmarks.report import Rendered, markdown
from thunder_benchmarks.statistics_of_rounds import geometric_mean

Program = Callable[..., Tensor]
Shapes = Callable[[int, int], Sequence[tuple[int, ...]]]

EXECUTORS = ("triton_kernels", "triton")
WAYS = ("eager", "torch.compile", "thunder", "Liger Kernel")


@dataclass(frozen=True)
class Operation:
    """A function of floating-point tensors, their shapes for rows and a width, and Liger Kernel's form of it.

    ``classes``: a last argument has a class, below the width, for each row. ``liger`` receives the width and
    a dtype, and returns a function of the same arguments, or of the first one where it has weights of ones.
    """

    program: Program
    shapes: Shapes
    liger: Callable[[int, torch.dtype], Program] | None = None
    classes: bool = False
    first_argument_alone: bool = field(default=False, kw_only=True)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def _liger_norm(name: str) -> Callable[[int, torch.dtype], Program]:
    """Return a maker of one of Liger Kernel's modules, whose weights are ones and zeros at first."""

    def make(width: int, dtype: torch.dtype) -> Program:
        cls = getattr(importlib.import_module("liger_kernel.transformers"), name)
        module: Program = cls(width, eps=1e-5).to("cuda", dtype)
        return module

    return make


def _liger_swiglu(width: int, dtype: torch.dtype) -> Program:
    function = importlib.import_module("liger_kernel.ops.swiglu").LigerSiLUMulFunction
    return lambda a, b: function.apply(a, b)


def _liger_loss(width: int, dtype: torch.dtype) -> Program:
    loss: Program = importlib.import_module("liger_kernel.transformers").LigerCrossEntropyLoss()
    return loss


OPERATIONS: dict[str, Operation] = {
    "sum, GELU": Operation(lambda x, y: F.gelu(x + y), lambda n, w: [(n, w), (n, w)]),
    "bias, tanh, product": Operation(
        lambda x, b, y: torch.tanh(x + b) * y, lambda n, w: [(n, w), (w,), (n, w)]
    ),
    "SwiGLU": Operation(lambda a, b: F.silu(a) * b, lambda n, w: [(n, w), (n, w)], _liger_swiglu),
    "rotary embedding": Operation(_rotated, lambda n, w: [(n, w), (n, w), (n, w)]),
    "softmax": Operation(lambda x: F.softmax(x, -1), lambda n, w: [(n, w)]),
    "RMSNorm": Operation(
        lambda x, w: F.rms_norm(x, w.shape, w, 1e-5),
        lambda n, w: [(n, w), (w,)],
        _liger_norm("LigerRMSNorm"),
        first_argument_alone=True,
    ),
    "sum, RMSNorm": Operation(
        lambda x, r, w: F.rms_norm(x + r, w.shape, w, 1e-5), lambda n, w: [(n, w), (n, w), (w,)]
    ),
    "LayerNorm": Operation(
        lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5),
        lambda n, w: [(n, w), (w,), (w,)],
        _liger_norm("LigerLayerNorm"),
        first_argument_alone=True,
    ),
    "cross entropy": Operation(F.cross_entropy, lambda n, w: [(n, w)], _liger_loss, classes=True),
}


def arguments_of(
    operation: Operation, rows: int, width: int, dtype: torch.dtype, device: str
) -> list[Tensor]:
    """Return random arguments; vectors are ones, as the weights of a new layer."""
    generator = torch.Generator().manual_seed(0)
    made = [
        torch.ones(shape) if len(shape) == 1 else torch.randn(shape, generator=generator)
        for shape in operation.shapes(rows, width)
    ]
    arguments = [x.to(device, dtype).requires_grad_() for x in made]
    if operation.classes:
        arguments.append(torch.randint(width, (rows,), generator=generator).to(device))
    return arguments


def bytes_moved(arguments: Sequence[Tensor], result: Tensor, training: bool) -> int:
    """Return the bytes that must be read and written, forward alone or with the backward."""
    read, written = sum(map(_size, arguments)), _size(result)
    gradients = sum(_size(x) for x in arguments if x.requires_grad)
    return read + written + (read + written + gradients if training else 0)


def _size(x: Tensor) -> int:
    return x.numel() * x.element_size()


def ways_for(
    operation: Operation, width: int, dtype: torch.dtype, executors: Sequence[str]
) -> dict[str, Program]:
    """Return name → how the operation is run."""
    program = operation.program
    ways = {
        "eager": program,
        "torch.compile": torch.compile(lambda *args: program(*args)),
        "thunder": thunder.jit(lambda *args: program(*args), executors=list(executors)),
    }
    if operation.liger is not None and importlib.util.find_spec("liger_kernel") is not None:
        kernel, alone = operation.liger(width, dtype), operation.first_argument_alone
        ways["Liger Kernel"] = lambda *args: kernel(args[0]) if alone else kernel(*args)
    return ways


def seconds(run: Callable[[], object], device: str, repeats: int) -> float:
    """Return the median time of a run."""
    if device == "cuda":
        testing = importlib.import_module("triton.testing")
        milliseconds: float = testing.do_bench(run, rep=20 * repeats, return_mode="median")
        return milliseconds / 1e3
    times = []
    for _ in range(repeats):
        start = perf_counter()
        run()
        times.append(perf_counter() - start)
    return median(times)


def _training_step(
    program: Program, arguments: Sequence[Tensor], cotangent: Tensor
) -> Callable[[], Sequence[Tensor | None]]:
    """Return a function that returns the gradients; None for arguments that are not read."""
    leaves = [x for x in arguments if x.requires_grad]
    return lambda: torch.autograd.grad(program(*arguments), leaves, cotangent, allow_unused=True)


def _forward(program: Program, arguments: Sequence[Tensor]) -> Callable[[], Sequence[Tensor | None]]:
    return lambda: [program(*arguments)]


#: how far results may be from eager's, as a part of their norm
FARTHEST = 2e-2


def far_from(results: Sequence[Tensor | None], expected: Sequence[Tensor | None]) -> float:
    """Return the largest distance of a result from the expected one, as a part of the expected one's norm.

    A sum of half precision numbers over many rows differs by more than that in single elements.
    """
    pairs = [(a, b) for a, b in zip(results, expected, strict=True) if a is not None and b is not None]
    return max(float((a.double() - b).norm() / b.double().norm().clamp(min=1e-30)) for a, b in pairs)


def measured(name: str, options: argparse.Namespace, training: bool) -> dict[str, float]:
    """Return way → bytes per second of an operation.

    NaN is a way whose results, or in training its gradients, are not eager's.
    """
    operation, dtype = OPERATIONS[name], getattr(torch, options.dtype)
    torch.compiler.reset()
    arguments = arguments_of(operation, options.rows, options.width, dtype, options.device)
    cotangent = torch.ones_like(operation.program(*arguments))
    moved = bytes_moved(arguments, cotangent, training)
    found: dict[str, float] = {}
    expected: Sequence[Tensor | None] = ()
    for way, program in ways_for(operation, options.width, dtype, options.executors).items():
        if way not in options.ways:
            continue
        run = _training_step(program, arguments, cotangent) if training else _forward(program, arguments)
        with torch.set_grad_enabled(training):
            results = run()
            expected = expected or results
            if far_from(results, expected) > FARTHEST:
                found[way] = math.nan
                continue
            found[way] = moved / seconds(run, options.device, options.repeats)
    return found


def bandwidths(options: argparse.Namespace, limit: float | None) -> Rendered:
    """Return the table of gigabytes per second, with parts of the limit where that is known."""
    table = Rendered("Bandwidth", ("operation", "mode", *options.ways, "thunder ÷ torch.compile"))
    ratios = []
    for name in options.operations:
        for training in (False, True):
            found = measured(name, options, training)
            cells = [_cell(found.get(way), limit) for way in options.ways]
            ratio = found.get("thunder", math.nan) / found.get("torch.compile", math.nan)
            if not math.isnan(ratio):
                ratios.append(ratio)
                cells.append(f"{ratio:.2f}")
            else:
                cells.append("-")
            table.rows.append((name, "training" if training else "forward", *cells))
    mean = f"{geometric_mean(ratios):.2f}" if ratios else "-"
    table.rows.append(("geometric mean", "", *("" for _ in options.ways), mean))
    part = "" if limit is None else f", and the part of {limit / 1e9:,.0f} GB/s, the device's limit"
    table.notes.append(f"GB/s{part}; more is faster.")
    return table


def _cell(bandwidth: float | None, limit: float | None) -> str:
    if bandwidth is None:
        return "-"
    if math.isnan(bandwidth):
        return "differs"
    return f"{bandwidth / 1e9:,.1f}" + (f" ({bandwidth / limit:.0%})" if limit is not None else "")


def loss_memory(options: argparse.Namespace) -> Rendered:
    """Return the table of the highest memory in use during a training step of a linear layer and its loss."""
    dtype, features = getattr(torch, options.dtype), 1024

    def program(x: Tensor, w: Tensor, t: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(x, w), t)

    x = torch.randn(options.rows, features).to(options.device, dtype).requires_grad_()
    w = torch.randn(options.classes, features).to(options.device, dtype).requires_grad_()
    t = torch.randint(options.classes, (options.rows,)).to(options.device)
    table = Rendered("Memory of a loss", ("way", "peak above the arguments, MiB", "÷ eager"))
    sizes: list[int] = []
    for way, run in (
        ("eager", program),
        ("thunder", thunder.jit(program, executors=list(options.executors))),
    ):
        step = _training_step(run, (x, w, t), torch.ones((), device=options.device, dtype=dtype))
        step()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        step()
        sizes.append(torch.cuda.max_memory_allocated() - before)
        table.rows.append((way, f"{sizes[-1] / 2**20:,.1f}", f"{sizes[-1] / sizes[0]:.3f}"))
    table.notes.append(f"{options.rows} rows, {features} features, {options.classes} classes.")
    return table


def bandwidth_of(device: str) -> float | None:
    """Return the memory bandwidth (bytes/s) of the profile whose name is in that of the device, or None."""
    if device != "cuda":
        return None
    words = torch.cuda.get_device_name().lower().replace("-", " ").split()
    profile = next((p for name, p in known_profiles().items() if name in words), None)
    limit = None if profile is None else profile.features.get("bandwidth")
    return float(limit) if isinstance(limit, int | float) else None


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--width", type=int, default=8192)
    parser.add_argument("--classes", type=int, default=128_256, help="of the loss whose memory is measured")
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--executors", nargs="*", default=list(EXECUTORS), help="of thunder")
    parser.add_argument("--ways", nargs="*", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--operations", nargs="*", default=list(OPERATIONS), choices=list(OPERATIONS))
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        sys.exit("There is no CUDA device here. --device cpu --executors measures this processor.")
    print(markdown(bandwidths(options, bandwidth_of(options.device))))
    if options.device == "cuda":
        print(markdown(loss_memory(options)))
        print(torch.cuda.get_device_name(), "torch", torch.__version__)


if __name__ == "__main__":
    main()
