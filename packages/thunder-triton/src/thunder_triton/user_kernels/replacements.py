"""The functions of Triton, and of torch, in whose place launches are traced."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch

from thunder.plugins import Lookaside

__all__ = ["replacements"]


def replacements() -> Iterator[Lookaside]:
    """Yield the replacements; those of Triton, if it is imported: without it no program has a kernel."""
    yield Lookaside(torch.library.wrap_triton, _unwrapped)
    if "triton.runtime.jit" not in sys.modules:
        return
    launches: Any = import_module("thunder_triton.user_kernels.launches")
    launch = launches.launch
    runtime: Any = import_module("triton.runtime")
    for cls in (runtime.jit.JITFunction, runtime.autotuner.Autotuner, runtime.autotuner.Heuristics):
        yield Lookaside(cls.run, launch, reads_code=True)
    function_of_constants = getattr(runtime.jit, "ConstexprFunction", None)
    if function_of_constants is not None:
        yield Lookaside(function_of_constants.__call__, launches.constant, reads_code=True)
    interpreter = sys.modules.get("triton.runtime.interpreter")
    if interpreter is not None:
        yield Lookaside(interpreter.InterpretedFunction.run, launch, reads_code=True)


def _unwrapped(triton_kernel: Any, /) -> Any:
    """Return a kernel as it is: its launches are traced."""
    return triton_kernel
