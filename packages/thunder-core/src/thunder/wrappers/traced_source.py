"""Tools of torch that read a compiled object's source: they get the user's program, not the compiled one."""

from __future__ import annotations

import functools
import warnings

import torch

from thunder.base.errors import ThunderWarning, UnsupportedProgram
from thunder.wrappers.overrides import Overrides

__all__ = ["scriptable", "warn_of_source"]


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
    if overrides.tensors:
        raise UnsupportedProgram(
            "torch.jit.script of a module with transforms that replace its tensors",
            hint="Script the module that was compiled, compiled._orig_mod.",
        )
    warn_of_source("torch.jit.script")
    return model
