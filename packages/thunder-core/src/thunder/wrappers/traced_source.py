"""Tools of torch that read a compiled object's source: they get the user's program, not the compiled one."""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Final

import torch

from thunder.base.errors import ThunderWarning, UnsupportedProgram
from thunder.base.torch_versions import fx_is_tracing
from thunder.wrappers.overrides import Overrides

__all__ = ["FX", "is_symbolic_tracing", "scriptable", "symbolically_traced", "warn_of_source"]

#: tracers of torch.fx, such as those of symbolic_trace and of quantisation in graph mode
FX: Final = "torch.fx"
#: the method that each of them runs
_TRACE: Final = torch.fx.Tracer.trace.__code__


@functools.cache
def warn_of_source(tool: str) -> None:
    """Warn that a tool of torch keeps the program as it was written; once in a process for each tool."""
    warnings.warn(
        f"{tool} keeps the program as it was written: nothing that thunder compiled is part of the result",
        ThunderWarning,
        stacklevel=5,
    )


def scriptable(model: torch.nn.Module, overrides: Overrides) -> torch.nn.Module:
    """Return what `torch.jit.script` compiles in place of a compiled module: the user's module.

    Raises UnsupportedProgram where overriding tensors change what the module computes.
    """
    _note("torch.jit.script", overrides)
    return model


def is_symbolic_tracing() -> bool:
    """Return whether a tracer of `torch.fx` runs in this thread, which reads the function of a program.

    Torch's flag may be one for all threads: a compiler may trace in another one.
    """
    return fx_is_tracing() and _runs_here()


def _runs_here() -> bool:
    frame = sys._getframe(1)
    while frame is not None and frame.f_code is not _TRACE:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def symbolically_traced(overrides: Overrides | None) -> None:
    """Say that a tracer of `torch.fx`, if one runs, reads the user's program in place of the compiled one.

    Raises UnsupportedProgram where overriding tensors change what the module computes.
    """
    if is_symbolic_tracing():
        _note(FX, overrides)


def _note(tool: str, overrides: Overrides | None) -> None:
    if overrides is not None and overrides.tensors:
        raise UnsupportedProgram(
            f"{tool} of a module with transforms that replace its tensors",
            hint="Give it the module that was compiled, compiled._orig_mod.",
        )
    warn_of_source(tool)
