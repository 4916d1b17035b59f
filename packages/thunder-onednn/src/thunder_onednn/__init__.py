"""oneDNN for thunder: linear layers and convolutions of frozen weights, and quantised ones, on CPUs.

The plugin of the executor `onednn`, which a program names: `executors=["onednn"]`, with the transform
`Freezing` of thunder-transforms, which says what weights are frozen; of the transform `QuantizeWeights`, and
of the plugin of recipes "quantize-int8".
"""

from importlib import import_module
from typing import Any

from thunder.extend import Rank
from thunder.plugins import ExecutorSpec, TransformSpec, hookimpl

__all__ = ["thunder_executors", "thunder_pipeline", "thunder_recipes", "thunder_transforms"]


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
def thunder_transforms() -> list[TransformSpec]:
    """Declare the transform, which `thunder.transforms.QuantizeWeights` imports."""
    return [
        TransformSpec(
            "QuantizeWeights",
            "thunder_onednn.quantised.quantize_weights:QuantizeWeights",
            description="weights of linear layers in 8 and 4 bits, for inference on CPUs",
        )
    ]


@hookimpl
def thunder_recipes() -> dict[str, type[Any]]:
    """Provide the plugin of recipes that stores weights in int8."""
    return {"quantize-int8": import_module("thunder_onednn.quantised.recipe").QuantizeInt8}


@hookimpl
def thunder_pipeline(pipeline: Any, options: Any) -> None:
    """Add the stages of programs that the executor takes part in."""
    import_module("thunder_onednn.stages").add_stages(pipeline)
