"""The global state of torch and Python that a call must not change."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["changed", "read_state", "restored"]


def _autocast(kind: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    def write(state: tuple[bool, torch.dtype]) -> None:
        torch.set_autocast_enabled(kind, state[0])
        torch.set_autocast_dtype(kind, state[1])

    return lambda: (torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)), write


def _cudnn() -> tuple[bool, bool, bool]:
    flags = torch.backends.cudnn
    return flags.enabled, flags.benchmark, flags.deterministic


def _set_cudnn(state: tuple[bool, bool, bool]) -> None:
    flags = torch.backends.cudnn
    flags.enabled, flags.benchmark, flags.deterministic = state


def _set_environment(state: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(state)


def _set_filters(state: list[Any]) -> None:
    warnings.filters[:] = state  # type: ignore[index]  # a list, whatever its annotation says


def _set_default_device(state: torch.device) -> None:
    torch.set_default_device(None if state == torch.device("cpu") else state)


def _set_deterministic(state: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(state[0], warn_only=state[1])


#: name → function that reads it, function that writes it
STATE: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "the grad mode": (torch.is_grad_enabled, torch.set_grad_enabled),
    "the default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "the default device": (torch.get_default_device, _set_default_device),
    "autocast on the CPU": _autocast("cpu"),
    "autocast on CUDA": _autocast("cuda"),
    "deterministic algorithms": (
        lambda: (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        _set_deterministic,
    ),
    "anomaly detection": (torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly),
    "the precision of matmul": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "the number of threads": (torch.get_num_threads, torch.set_num_threads),
    "the settings of cudnn": (_cudnn, _set_cudnn),
    "Python's random numbers": (random.getstate, random.setstate),
    "the filters of warnings": (lambda: list(warnings.filters), _set_filters),
    "the environment": (lambda: dict(os.environ), _set_environment),
    "the working directory": (os.getcwd, os.chdir),
}


def read_state() -> dict[str, Any]:
    """Return name → value of the state."""
    return {name: read() for name, (read, _) in STATE.items()}


def changed(before: Mapping[str, Any]) -> list[str]:
    """Return the names of the state that differs from `before`."""
    return [name for name, (read, _) in STATE.items() if read() != before[name]]


@contextmanager
def restored() -> Iterator[dict[str, Any]]:
    """Provide the state within a context; at its end restore what has changed."""
    before = read_state()
    try:
        yield before
    finally:
        for name in changed(before):
            STATE[name][1](before[name])
