"""Finds what TorchInductor needs: a torch that the package knows, and a compiler for the device."""

from __future__ import annotations

import functools
import importlib.util
import os
import shutil
import sys
from typing import Final

import torch

from thunder.extend import Refusal

__all__ = ["COMPILERS", "NEWEST", "OLDEST", "missing_for", "unsupported_torch"]

#: the oldest and the newest torch with which the package was tried
OLDEST: Final = (2, 13)
NEWEST: Final = (2, 15)

#: platform → the program that compiles C++ for TorchInductor if CXX is not set; the README has its flags. On
#: others, such as Windows, regions are refused: a library of kernels is loaded as POSIX does, and the process
#: that compiles in the background is reached by pipes that do not block.
COMPILERS: Final = {"linux": "g++", "darwin": "clang++"}


@functools.cache
def unsupported_torch(version: str) -> Refusal | None:
    """Return why the package does not use TorchInductor of this torch, or None."""
    major, minor, *_ = version.split(".")
    if OLDEST <= (int(major), int(minor)) <= NEWEST:
        return None
    first, last = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    reason = f"thunder-inductor was tried with torch {first} to {last}, and not with this one"
    return Refusal("torch", reason, torch=version)


def missing_for(device: str) -> Refusal | None:
    """Return what is missing to compile for a type of device, or None if all is there."""
    unsupported = unsupported_torch(torch.__version__)
    if unsupported is not None:
        return unsupported
    if sys.platform not in COMPILERS:
        reason = "regions are compiled on Linux and macOS"
        return Refusal("platform", reason, platform=sys.platform)
    if device == "cpu":
        return _without_compiler(os.environ.get("CXX"), os.environ.get("PATH"))
    return _without_triton(device)


@functools.cache
def _without_compiler(chosen: str | None, path: str | None) -> Refusal | None:
    """Return a refusal if no C++ compiler is at `chosen` or on the search path."""
    name = chosen or COMPILERS[sys.platform]
    if shutil.which(name, path=path) is not None:
        return None
    return Refusal("compiler", "there is no C++ compiler; install one or set CXX to its path", program=name)


@functools.cache
def _without_triton(device: str) -> Refusal | None:
    """Return a refusal if TorchInductor has no code generator for a type of device."""
    if device != "cuda":
        return Refusal("device", "regions are compiled for CPUs and GPUs", device=device)
    if importlib.util.find_spec("triton") is None:
        return Refusal("compiler", "there is no Triton, which compiles for GPUs")
    return None
