"""Triton for thunder: regions of a program become generated, readable Triton kernels.

The plugin of the executors `triton` and `triton_kernels`. Thunder imports this module when it looks for
executors; Triton itself is imported when a kernel is first launched.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any

from thunder.extend import Rank
from thunder.plugins import ExecutorSpec, Lookaside, Option, hookimpl

__all__ = ["thunder_executors", "thunder_lookasides", "thunder_options", "thunder_rewrites"]


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """Declare the executors, which a program names: `executors=["triton_kernels", "triton"]`."""
    return [
        ExecutorSpec(
            "triton",
            "thunder_triton.executor:executor",
            rank=Rank.FUSION,
            requires=("triton",),
            description="regions as generated Triton kernels",
        ),
        ExecutorSpec(
            "triton_kernels",
            "thunder_triton.kernel_executor:executor",
            rank=Rank.KERNEL,
            requires=("triton",),
            description="Triton kernels: attention, losses, linear layers, gradients of embeddings",
        ),
    ]


@hookimpl
def thunder_options() -> list[Option]:
    """Declare the options of `thunder.jit` that the executor `triton` reads."""
    return [
        Option(
            "triton_autotune",
            bool,
            False,
            "Whether block sizes of generated Triton kernels are measured when they first run; the choice is "
            "kept on disk.",
        ),
        Option(
            "triton_random",
            bool,
            False,
            "Whether generated Triton kernels draw random numbers (dropout, rand_like, randn_like, "
            "bernoulli): of torch's distribution, and not those that torch draws with the same seed.",
        ),
    ]


@hookimpl(optionalhook=True)
def thunder_rewrites(executors: frozenset[str]) -> Iterable[Any]:
    """Provide the rules by which programs use operators of the library."""
    if "triton_kernels" not in executors:
        return ()
    rules: Iterable[Any] = import_module("thunder_triton.kernel_executor").rules()
    return rules


@hookimpl
def thunder_lookasides() -> Iterable[Lookaside]:
    """Trace the launches of users' kernels."""
    replacements: Iterable[Lookaside] = import_module(
        "thunder_triton.user_kernels.replacements"
    ).replacements()
    return replacements
