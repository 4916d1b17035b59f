"""Find what the package needs on this machine: Triton, and a CUDA device or Triton's interpreter."""

from __future__ import annotations

import functools
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from thunder.core.errors import InvalidArgument
from thunder.extend import Refusal, device_profile
from thunder.plugins import Unavailable

__all__ = ["NEWEST", "OLDEST", "is_interpreted", "missing_device", "triton_version", "unavailable"]

#: the oldest and the newest release of Triton with which the package was tried
OLDEST: Final = (3, 6)
NEWEST: Final = (3, 9)

#: the variable that makes Triton interpret kernels, on CPU tensors; Triton reads it when it is imported
INTERPRETER_VARIABLE: Final = "TRITON_INTERPRET"

#: the first compute capability for which the generated kernels are made
OLDEST_CAPABILITY: Final = (8, 0)


@functools.cache
def is_interpreted() -> bool:
    """Return whether kernels run in Triton's interpreter, on CPU tensors: `TRITON_INTERPRET=1`.

    The first answer stays, as it does for Triton, which reads the variable once.
    """
    return os.environ.get(INTERPRETER_VARIABLE, "0").lower() in ("1", "true", "on", "yes")


def triton_version() -> str | None:
    """Return the version of the installed Triton, or None."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


def unavailable() -> Unavailable | None:
    """Return why the executors cannot be used here, or None: no Triton, or no device and no interpreter."""
    unsupported = _unsupported_triton(triton_version())
    if unsupported is not None:
        return Unavailable(unsupported)
    refusal = None if is_interpreted() else missing_device("cuda")
    return None if refusal is None else Unavailable(refusal.message, lacks_device=True)


def _unsupported_triton(found: str | None) -> str | None:
    """Return why this version of Triton is not used, or None."""
    if found is None:
        return "Triton is not installed: pip install triton"
    major, minor, *_ = found.split(".")
    if OLDEST <= (int(major), int(minor)) <= NEWEST:
        return None
    first, last = (".".join(map(str, release)) for release in (OLDEST, NEWEST))
    return f"Triton {first} to {last} was tried, and {found} is installed"


def missing_device(device_type: str) -> Refusal | None:
    """Return why no kernel is generated for a type of device, or None.

    A CUDA device may be one that a plan assumes. CPU tensors are for Triton's interpreter alone.
    """
    if device_type == "cpu":
        if is_interpreted():
            return None
        message = (
            f"Triton compiles for GPUs; {INTERPRETER_VARIABLE}=1 interprets its kernels on a CPU, slowly"
        )
        return Refusal("device", message, device=device_type)
    if device_type != "cuda":
        return Refusal("device", "Triton compiles for CUDA devices", device=device_type)
    try:
        capability = device_profile("cuda").capability
    except InvalidArgument:
        return Refusal("device", "there is no CUDA device, and no plan assumes one")
    if capability < OLDEST_CAPABILITY:
        oldest = ".".join(map(str, OLDEST_CAPABILITY))
        found = ".".join(map(str, capability)) or "none"
        return Refusal("capability", f"kernels are for compute capability {oldest} and later", found=found)
    return None
