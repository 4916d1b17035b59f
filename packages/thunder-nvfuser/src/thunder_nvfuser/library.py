"""nvFuser: its import, and what to install where it is missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Any, Final

import torch

from thunder.plugins import VendorLibrary

from .library_options import request_dumps

__all__ = ["install_command", "installed_version", "library", "missing", "usable_executor"]

MODULE = "nvfuser_direct"
#: builds of the library in November 2026, for CPython 3.12: (CUDA, torch) of each
BUILDS = (("12.8", "2.10"), ("13.0", "2.10"))
PYTHON = (3, 12)
VERSION = "0.2.36.dev20260301"
#: the release whose operations and options the package has tables of
RELEASE = "0.2.36"


def install_command() -> str:
    """Return the command that installs the build for this torch and CUDA, or the last build and its torch."""
    build = (torch.version.cuda or "", _release())
    if build in BUILDS:
        return f"pip install '{_distribution(*build)}>={VERSION}'"
    return f"pip install 'torch=={BUILDS[-1][1]}.*' '{_distribution(*BUILDS[-1])}>={VERSION}'"


def _distribution(cuda: str, release: str) -> str:
    """Return the name of the build for a CUDA and a torch."""
    return f"nvfuser-cu{cuda.replace('.', '')}-torch{release.replace('.', '')}"


@cache
def installed_version() -> str | None:
    """Return the version of the build that is installed, or None."""
    for build in BUILDS:
        try:
            return version(_distribution(*build))
        except PackageNotFoundError:
            continue
    return None


def _release() -> str:
    return ".".join(torch.__version__.split(".")[:2])


def missing() -> str | None:
    """Return why nvFuser cannot be used here, with what to do about it, or None."""
    if find_spec(MODULE) is None:
        return _not_installed()
    installed = installed_version()
    if installed is not None and not installed.startswith(f"{RELEASE}."):
        return f"nvFuser {installed} is installed, and {RELEASE} is required. Install it: {install_command()}"
    if torch.version.cuda is None:
        return f"{MODULE} is installed, and torch {torch.__version__} is built without CUDA"
    if not torch.cuda.is_available():
        return f"{MODULE} is installed, and torch finds no CUDA device"
    return None


def _not_installed() -> str:
    if sys.platform != "linux":
        return "nvFuser is not installed, and exists for Linux with CUDA alone"
    lacking = []
    if sys.version_info[:2] != PYTHON:
        lacking.append(f"CPython {sys.version_info[0]}.{sys.version_info[1]}")
    if torch.version.cuda is None:
        lacking.append("a torch without CUDA")
    elif (torch.version.cuda, _release()) not in BUILDS:
        lacking.append(f"torch {_release()} with CUDA {torch.version.cuda}")
    if not lacking:
        return f"nvFuser is not installed. Install it: {install_command()}"
    built = " and ".join(f"torch {release} with CUDA {cuda}" for cuda, release in BUILDS)
    return (
        f"nvFuser is not installed. It has builds for CPython 3.12, {built}, and none for "
        f"{' and '.join(lacking)}. With CPython 3.12 and CUDA: {install_command()}"
    )


LIBRARY: Final = VendorLibrary("nvFuser", missing=missing, install=install_command)


def usable_executor() -> Any:
    """Return the executor `nvfuser`, or an Unavailable that says why it cannot be used here."""
    return LIBRARY.executor("thunder_nvfuser.executor:nvfuser_ex")


@cache
def _library() -> Any:
    return LIBRARY.module(MODULE)


def library(dumps: Sequence[str] = ()) -> Any:
    """Import and return `nvfuser_direct`, which prints what `dumps` names (NVFUSER_DUMP).

    Raises ExecutorUnavailable, with the command that installs it, if it is missing or cannot be imported,
    and InvalidArgument for dumps after its first use.
    """
    request_dumps(dumps, is_used=_library.cache_info().currsize > 0)
    return _library()
