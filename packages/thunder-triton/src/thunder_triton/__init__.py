"""Triton for thunder: regions of a program become generated, readable Triton kernels.

The plugin of the executors `triton` and `triton_kernels`. Thunder imports this module when it looks for
executors; Triton itself is imported when a kernel is first launched.
"""

from thunder.extend import Rank
from thunder.plugins import ExecutorSpec, hookimpl

__all__ = ["thunder_executors"]


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
            description="a library of Triton kernels: cross entropy",
        ),
    ]
