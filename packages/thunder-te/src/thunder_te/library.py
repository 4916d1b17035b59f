"""Transformer Engine: its import, and what to install where it is missing."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from thunder.core.errors import ExecutorUnavailable
from thunder.extend import Executor
from thunder.plugins import Unavailable

__all__ = ["INSTALL", "library", "missing", "usable_executor"]

#: its part for torch is compiled when it is installed, against the torch that is there
INSTALL = "pip install --no-build-isolation 'transformer-engine[core_cu13,pytorch]>=2.20,<2.21'"


def missing() -> str | None:
    """Return why Transformer Engine cannot be used here, with what to do about it, or None."""
    try:
        installed = version("transformer-engine")
    except PackageNotFoundError:
        if sys.platform != "linux":
            return "Transformer Engine is not installed, and exists for Linux with CUDA alone"
        return f"Transformer Engine is not installed. Install it: {INSTALL}"
    if tuple(installed.split(".")[:2]) != ("2", "20"):
        return f"Transformer Engine {installed} is installed, and 2.20 is required. Install it: {INSTALL}"
    if not torch.cuda.is_available():
        return f"Transformer Engine {installed} needs a CUDA device, and torch finds none"
    return None


def usable_executor() -> Executor | Unavailable:
    """Return the executor `transformer_engine`, or why it cannot be used here."""
    reason = missing()
    if reason is not None:
        return Unavailable(reason)
    executor: Executor = import_module("thunder_te.executors").transformer_engine_ex
    return executor


@cache
def library(module: str) -> Any:
    """Import and return a module of Transformer Engine, such as `transformer_engine.pytorch`.

    Raises ExecutorUnavailable, with the command that installs it, if it is missing or cannot be imported.
    """
    reason = missing()
    if reason is not None:
        raise ExecutorUnavailable("Transformer Engine cannot be used here", hint=reason)
    try:
        return import_module(module)
    except (ImportError, OSError, RuntimeError) as error:
        raise ExecutorUnavailable(
            f"{module} cannot be imported: {error}", hint=f"Install it again: {INSTALL}"
        ) from error
