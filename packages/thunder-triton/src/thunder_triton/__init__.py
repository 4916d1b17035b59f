"""Triton for thunder: regions of a program become generated, readable Triton kernels.

The plugin of the executor `triton`. Thunder imports this module when it looks for executors; Triton itself is
imported when the executor is first needed.
"""

from thunder.extend import Rank
from thunder.plugins import ExecutorSpec, hookimpl

__all__ = ["thunder_executors"]


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """Declare the executor, which a program names: `thunder.jit(f, executors=["triton"])`."""
    return [
        ExecutorSpec(
            "triton",
            "thunder_triton.executor:executor",
            rank=Rank.FUSION,
            requires=("triton",),
            description="regions as generated Triton kernels",
        )
    ]
