"""Transformer Engine: its import, and what to install where it is missing."""

from __future__ import annotations

import sys
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

import torch

from thunder.plugins import VendorLibrary

__all__ = ["INSTALL", "installed_version", "library", "missing", "usable_executor"]

#: its part for torch is compiled when it is installed, against the torch that is there
INSTALL = "pip install --no-build-isolation 'transformer-engine[core_cu13,pytorch]>=2.20,<2.21'"


def installed_version() -> str | None:
    """Return the version of Transformer Engine that is installed, or None."""
    try:
        return version("transformer-engine")
    except PackageNotFoundError:
        return None


def missing() -> str | None:
    """Return why Transformer Engine cannot be used here, with what to do about it, or None."""
    installed = installed_version()
    if installed is None:
        if sys.platform != "linux":
            return "Transformer Engine is not installed, and exists for Linux with CUDA alone"
        return f"Transformer Engine is not installed. Install it: {INSTALL}"
    if tuple(installed.split(".")[:2]) != ("2", "20"):
        return f"Transformer Engine {installed} is installed, and 2.20 is required. Install it: {INSTALL}"
    if not torch.cuda.is_available():
        return f"Transformer Engine {installed} needs a CUDA device, and torch finds none"
    return None


LIBRARY: Final = VendorLibrary("Transformer Engine", missing=missing, install=lambda: INSTALL)


def usable_executor() -> Any:
    """Return the executor `transformer_engine`, or an Unavailable that says why it cannot be used here."""
    return LIBRARY.executor("thunder_te.executors:transformer_engine_ex")


@cache
def library(module: str) -> Any:
    """Import and return a module of Transformer Engine, such as `transformer_engine.pytorch`.

    Raises ExecutorUnavailable, with the command that installs it, if it is missing or cannot be imported.
    """
    return LIBRARY.module(module)
