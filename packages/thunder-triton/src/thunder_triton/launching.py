"""The launch of a kernel, on a GPU or in Triton's interpreter."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

import torch

from .environment import is_interpreted

__all__ = ["ASSERTING", "launch"]

#: the option of a launch with which a kernel stops where an assertion fails; the interpreter's do nothing
ASSERTING: Final[dict[str, bool]] = {} if is_interpreted() else {"debug": True}


def launch(kernel: Any, options: dict[str, Any], *arguments: Any) -> None:
    """Launch a kernel that has its grid, `kernel[(programs,)]`, on the device of its first argument.

    Triton launches on the current device, whichever the tensors are on.
    """
    if is_interpreted():
        functions: Any = import_module("thunder_triton.interpreter_functions")
        functions.run(kernel, options, *arguments)
    else:
        with torch.cuda.device(arguments[0].device):
            kernel(*arguments, **options)
