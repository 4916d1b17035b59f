"""oneDNN for thunder: linear layers and convolutions of frozen weights, on CPUs.

The plugin of the executor `onednn`, which a program names: `executors=["onednn"]`, with the transform
`Freezing` of thunder-transforms, which says what weights are frozen.
"""

from importlib import import_module
from typing import Any

from thunder.extend import Rank
from thunder.plugins import ExecutorSpec, hookimpl

__all__ = ["thunder_executors", "thunder_pipeline"]


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """Declare the executor."""
    return [
        ExecutorSpec(
            "onednn",
            "thunder_onednn.executor:executor",
            rank=Rank.KERNEL,
            description="linear layers and convolutions with weights in the form of oneDNN's kernels",
        )
    ]


@hookimpl
def thunder_pipeline(pipeline: Any, options: Any) -> None:
    """Add the stages of programs that the executor takes part in."""
    import_module("thunder_onednn.stages").add_stages(pipeline)
