"""nvFuser: its import, and what to install where it is missing."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch

from thunder.core.errors import ExecutorUnavailable
from thunder.extend import Executor
from thunder.plugins import Unavailable

__all__ = ["install_command", "library", "missing", "usable_executor"]

MODULE = "nvfuser_direct"
#: builds of the library: (CUDA, torch) of each; for CPython 3.10 and 3.12
BUILDS = (("128", "2.10"), ("130", "2.10"))
PYTHONS = ((3, 10), (3, 12))
VERSION = "0.2.36"


def install_command() -> str:
    """Return the command that installs a build, and the torch that it is for unless that is here."""
    cuda = (torch.version.cuda or "13.0").replace(".", "")
    builds = [build for build in BUILDS if build[0] == cuda] or [BUILDS[-1]]
    cuda, release = builds[-1]
    package = f"nvfuser-cu{cuda}-torch{release.replace('.', '')}"
    command = f"pip install '{package}>={VERSION}.dev20260301'"
    if _release(torch.__version__) != release or torch.version.cuda is None:
        index = f"https://download.pytorch.org/whl/cu{cuda}"
        command = f"pip install 'torch=={release}.*' --index-url {index} && {command}"
    return command


def _release(text: str) -> str:
    return ".".join(text.split(".")[:2])


def missing() -> str | None:
    """Return why nvFuser cannot be used here, with what to do about it, or None."""
    if find_spec(MODULE) is None:
        if sys.platform != "linux":
            return "nvFuser is not installed, and exists for Linux with CUDA alone"
        if sys.version_info[:2] not in PYTHONS:
            python = ".".join(map(str, sys.version_info[:2]))
            return (
                f"nvFuser is not installed, and has no build for CPython {python}. "
                f"With CPython 3.10 or 3.12: {install_command()}"
            )
        return f"nvFuser is not installed. Install it: {install_command()}"
    if torch.version.cuda is None:
        return f"{MODULE} is installed, and needs a torch with CUDA. Install one: {install_command()}"
    if not torch.cuda.is_available():
        return f"{MODULE} is installed, and torch finds no CUDA device"
    return None


def usable_executor() -> Executor | Unavailable:
    """Return the executor `nvfuser`, or why it cannot be used here."""
    reason = missing()
    if reason is not None:
        return Unavailable(reason)
    executor: Executor = import_module("thunder_nvfuser.executor").nvfuser_ex
    return executor


@cache
def library() -> Any:
    """Import and return `nvfuser_direct`.

    Raises ExecutorUnavailable, with the command that installs it, if it is missing or cannot be imported.
    """
    reason = missing()
    if reason is not None:
        raise ExecutorUnavailable("nvFuser cannot be used here", hint=reason)
    try:
        return import_module(MODULE)
    except (ImportError, OSError, RuntimeError) as error:
        raise ExecutorUnavailable(
            f"{MODULE} cannot be imported: {error}", hint=f"Install it again: {install_command()}"
        ) from error
