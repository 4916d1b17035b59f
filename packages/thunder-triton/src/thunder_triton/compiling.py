"""From generated source to functions: Triton kernels, and the Python function that launches them."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any, Final

import torch
import triton
import triton.language as tl

from .environment import is_interpreted
from .fusions.program import FusionProgram
from .launching import ASSERTING, launch

__all__ = ["jit_functions", "launcher"]

_numbers = itertools.count()

#: a contraction of a product and a sum would round once where eager rounds twice
_OPTIONS: Final = {"enable_fp_fusion": False}


@triton.jit
def product(a, b):  # type: ignore[no-untyped-def]  # of Triton's values
    """Return the product of two values, for reductions."""
    return a * b


@triton.jit
def check_places(places, size):  # type: ignore[no-untyped-def]  # of Triton's values
    """Stop the program if a place is not in a dimension of a size; under the option `debug`."""
    tl.device_assert((places >= 0) & (places < size), "index out of bounds")


def jit_functions(text: str, names: Sequence[str]) -> list[Any]:
    """Return the functions of a source, which Triton compiles when they are first launched.

    Triton reads the source of a function by its file and line, so it is entered into `linecache`.
    """
    file = f"<thunder_triton kernels {next(_numbers)}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {
        "__name__": "thunder_triton.generated",
        "tl": tl,
        "triton": triton,
        "product": product,
        **_device_functions(),
    }
    exec(compile(text, file, "exec"), namespace)
    return [namespace[name] for name in names]


def _device_functions() -> dict[str, Any]:
    """Return the names of generated sources: CUDA's functions, or those of the interpreter."""
    if is_interpreted():
        functions: Any = import_module("thunder_triton.interpreter_functions")
        names = ("check_places", "rounded_to_bfloat16")
        return {"libdevice": functions.library, **{name: getattr(functions, name) for name in names}}
    return {"libdevice": import_module("triton.language.extra.libdevice"), "check_places": check_places}


def launcher(program: FusionProgram, device: torch.device) -> Callable[..., list[torch.Tensor]]:
    """Return the function that computes the results of a program from its inputs.

    It is generated, since it runs in each call of a program:

        def launch(x):
            y = empty_strided((4, 8), (8, 1), dtype=float32, device=device)
            fusion_0[(4,)](x, y, BLOCK_I=1, BLOCK_J=8, num_warps=1)
            return [y]
    """
    kernels = jit_functions(program.text, [kernel.name for kernel in program.kernels])
    namespace: dict[str, Any] = {"empty_strided": torch.empty_strided, "device": device, "run": launch}
    lines = [f"def launch({', '.join(program.inputs)}):"]
    for i, new in enumerate(program.allocations):
        namespace[f"dtype{i}"] = new.dtype
        lines.append(
            f"    {new.name} = empty_strided({new.shape}, {new.strides}, dtype=dtype{i}, device=device)"
        )
    for i, (source, kernel) in enumerate(zip(program.kernels, kernels, strict=True)):
        options = {**source.constants, "num_warps": source.blocks.warps, **_OPTIONS}
        options |= ASSERTING if source.checks else {}
        namespace[f"kernel{i}"] = kernel[(source.programs,)]
        namespace[f"options{i}"] = options
        lines.append(f"    run(kernel{i}, options{i}, {', '.join(source.parameters)})")
    lines.append(f"    return [{', '.join(program.results)}]")
    exec(compile("\n".join(lines), "<launch of thunder_triton>", "exec"), namespace)
    function: Callable[..., list[torch.Tensor]] = namespace["launch"]
    return function
