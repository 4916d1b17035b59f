"""bitsandbytes: its import, and what to install where it is missing."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from thunder.core.errors import ExecutorUnavailable

__all__ = ["kernels", "library"]

REQUIREMENT = "bitsandbytes>=0.50,<0.51"


@cache
def library() -> Any:
    """Import and return bitsandbytes.

    Raises ExecutorUnavailable, with the requirement to install, if it is missing, is another version, or
    cannot be imported.
    """
    install = f"pip install '{REQUIREMENT}'"
    try:
        found = version("bitsandbytes")
    except PackageNotFoundError:
        raise ExecutorUnavailable("bitsandbytes is not installed", hint=f"Install it: {install}") from None
    if tuple(found.split(".")[:2]) != ("0", "50"):
        raise ExecutorUnavailable(
            f"bitsandbytes {found} has other kernels than those that thunder-bnb calls",
            found={"required": REQUIREMENT},
            hint=f"Install it: {install}",
        )
    try:
        return import_module("bitsandbytes")
    except (ImportError, OSError, RuntimeError) as error:
        raise ExecutorUnavailable(
            f"bitsandbytes {found} cannot be imported: {error}", hint=f"Install it again: {install}"
        ) from error


def kernels() -> Any:
    """Return the operators of bitsandbytes, `torch.ops.bitsandbytes`."""
    library()
    return torch.ops.bitsandbytes
