"""What a measurement depends on beside the call: the device, and the versions of software."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import torch

import thunder
from thunder.extend import Executor

__all__ = ["profile", "versions_of"]


def profile() -> str:
    """Return the name of the device on which programs run: that of the GPU, or the CPU with its threads."""
    if torch.cuda.is_available():
        return f"cuda {torch.cuda.get_device_name()}"
    return f"cpu {_processor()}, {counted(torch.get_num_threads(), 'thread')}"


def counted(number: int, noun: str) -> str:
    """Return ``1 thread``, ``2 threads``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


@cache
def _processor() -> str:
    """Return the processor's model, as Linux names it, or its architecture."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name" and value.strip():
                return value.strip()
    return platform.processor() or platform.machine()


def versions_of(executors: Iterable[Executor]) -> dict[str, str]:
    """Return the versions of torch, thunder, and the libraries of executors that say theirs."""
    named = {executor.name: executor.version for executor in executors if executor.version}
    return {"thunder": thunder.__version__, "torch": torch.__version__, **named}
