"""Faults of state: what is kept from call to call, and threads."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

from testing.example_executors import (
    Trial,
    gate_kernel,
    gate_meta,
    one_operator,
)
from testing.fault_table import NOT_FOUND, fault, of_gate
from testing.faulty_parts import checking
from thunder.base.tags import OpTags

# -- repetition and state ------------------------------------------------------------------------------------

_runs = SimpleNamespace(count=0, known={})


def _noisy(x: Any, w: Any, alpha: float) -> Any:
    return gate_kernel(x, w, alpha) * (1 + 1e-6 * torch.rand(()).to(x.dtype))


def _counting(x: Any, w: Any, alpha: float) -> Any:
    _runs.count += 1
    return gate_kernel(x, w, alpha) + 1e-6 * (_runs.count % 3)


def _hurried(x: Any, w: Any, alpha: float) -> Any:
    order = random.sample(range(3), 3)
    parts = [gate_kernel(x, w, alpha) * k for k in (0.1, 0.7, 0.2)]
    return sum(parts[i] for i in order) + 1e-7 * order[0]


of_gate(
    "repeats",
    random_numbers_undeclared=lambda: {"fn": _noisy},
    counts_its_runs=lambda: {"fn": _counting},
    adds_in_a_random_order=lambda: {"fn": _hurried},
)


@fault("a random operator with a generator of its own", "repeats")
def a_random_operator_with_a_generator_of_its_own() -> Trial:
    generator = torch.Generator()
    return one_operator(
        lambda x: torch.rand(x.shape, generator=generator), torch.rand_like, tags=(OpTags.RANDOM_OP,)
    )


def _and(change: Callable[[], Any]) -> Callable[[], dict[str, Any]]:
    def fn(x: Any, w: Any, alpha: float) -> Any:
        change()
        return gate_kernel(x, w, alpha)

    return lambda: {"fn": fn}


of_gate(
    "state",
    leaves_the_grad_mode_changed=_and(lambda: torch.set_grad_enabled(True)),
    leaves_the_default_dtype_changed=_and(lambda: torch.set_default_dtype(torch.float64)),
    leaves_deterministic_algorithms_on=_and(lambda: torch.use_deterministic_algorithms(True, warn_only=True)),
    leaves_autocast_on=_and(lambda: torch.set_autocast_enabled("cpu", True)),
    leaves_fewer_threads=_and(lambda: torch.set_num_threads(torch.get_num_threads() + 1)),
    leaves_the_precision_of_matmul_changed=_and(lambda: torch.set_float32_matmul_precision("medium")),
    seeds_torch=_and(lambda: torch.manual_seed(0)),
    draws_and_throws_away=_and(lambda: torch.rand(2)),
    seeds_Python=_and(lambda: random.seed(0)),
    sets_an_environment_variable=_and(lambda: os.environ.update(TOY_KERNEL_CACHE="1")),
    silences_warnings=_and(lambda: warnings.simplefilter("ignore")),
    checker_that_leaves_the_grad_mode_changed=checking(lambda x: torch.set_grad_enabled(True) is not None),
    meta_that_leaves_the_default_dtype_changed=lambda: {
        "meta": lambda x, w, alpha=1.0: (torch.set_default_dtype(torch.float64), gate_meta(x, w))[1]
    },
)


# -- threads -------------------------------------------------------------------------------------------------

_scratch: dict[Any, torch.Tensor] = {}
_settings = SimpleNamespace(alpha=1.0)


def _in_scratch_memory(x: Any, w: Any, alpha: float) -> Any:
    key = (tuple(x.shape), x.dtype)
    if key not in _scratch:
        _scratch[key] = torch.empty(x.shape, dtype=x.dtype)
    buffer = _scratch[key]
    torch.mul(w, alpha, out=buffer)
    buffer.sigmoid_()
    return x * buffer


def _by_settings(x: Any, w: Any, alpha: float) -> Any:
    _settings.w = w
    _settings.s = torch.sigmoid(alpha * _settings.w)
    return x * _settings.s


_kept: list[torch.Tensor] = []


def _keeping(keep: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    def fn(x: Any, w: Any, alpha: float) -> Any:
        out = gate_kernel(x, w, alpha)
        keep(x, w, out)
        return out

    return lambda: {"fn": fn}


class _WithWorkspace:
    def __init__(self) -> None:
        self.parts: list[torch.Tensor] = []

    def __call__(self, x: Any, w: Any, alpha: float) -> Any:
        self.parts.append(torch.sigmoid(alpha * w))
        first = self.parts[0]
        out = x * first
        self.parts.clear()
        return out


of_gate(
    "threads",
    scratch_memory_for_all=lambda: {"fn": _in_scratch_memory},
    arguments_kept_in_a_global=lambda: {"fn": _by_settings},
    workspace_on_an_object=lambda: {"fn": _WithWorkspace()},
)


of_gate("releases", arguments_kept_for_ever=_keeping(lambda x, w, out: _kept.append(w)))
of_gate("releases", results_kept_for_ever=_keeping(lambda x, w, out: _kept.append(out)))


# -- what shows in some runs only ----------------------------------------------------------------------------


def _wrong_if_large(x: Any, w: Any, alpha: float) -> Any:
    return gate_kernel(x, w, alpha) * (2 if x.numel() > 4096 else 1)


def _once_in_a_million_runs(x: Any, w: Any, alpha: float) -> Any:
    _runs.rare = getattr(_runs, "rare", 0) + 1
    out = gate_kernel(x, w, alpha)
    return out + 1e-3 if _runs.rare % 1_000_000 == 0 else out


def _wrong_at_one_number(x: Any, w: Any, alpha: float) -> Any:
    return gate_kernel(x, w, 0.0 if alpha == 0.123 else alpha)


of_gate("values", wrong_for_large_tensors=lambda: {"fn": _wrong_if_large})

#: these need a sample that shows them, which the tests cannot make up; they are not found
of_gate(
    NOT_FOUND,
    wrong_once_in_a_million_runs=lambda: {"fn": _once_in_a_million_runs},
    wrong_for_one_value_of_a_number=lambda: {"fn": _wrong_at_one_number},
)
