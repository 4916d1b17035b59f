"""FP8 for thunder: linear layers by Transformer Engine, and a reference of its recipes in torch.

The plugin of the executors `transformer_engine` and `fp8_reference`. Transformer Engine itself is imported
when one of its kernels first runs.
"""

from collections.abc import Hashable, Mapping
from importlib import import_module
from typing import Any

from thunder.plugins import ExecutorSpec, TransformSpec, hookimpl

from .active_recipe import guarded_state

__all__ = [
    "thunder_cache_state",
    "thunder_executors",
    "thunder_pipeline",
    "thunder_recipes",
    "thunder_transforms",
]


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """Declare the executor of Transformer Engine, and that of the reference in torch."""
    return [
        ExecutorSpec(
            "transformer_engine",
            "thunder_te.library:usable_executor",
            description="linear layers in FP8 by Transformer Engine",
            tried="the interface of Transformer Engine 2.20; its kernels on no GPU yet",
        ),
        ExecutorSpec(
            "fp8_reference",
            "thunder_te.executors:fp8_reference_ex",
            description="linear layers in FP8 by formulas in torch, on any device",
            tried="torch 2.13.0 on a CPU",
        ),
    ]


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """Declare the transforms, which `thunder.transforms.<Name>` imports."""
    return [
        TransformSpec(
            "TransformerEngineTransform",
            "thunder_te.transform:TransformerEngineTransform",
            description="scales of FP8 tensors from earlier steps (delayed scaling)",
        ),
        TransformSpec(
            "TEInference8BitTransform",
            "thunder_te.inference:TEInference8BitTransform",
            description="frozen weights of linear layers in 8 bits",
        ),
    ]


@hookimpl
def thunder_recipes() -> dict[str, type[Any]]:
    """Provide the plugin of recipes that computes linear layers in FP8."""
    return {"fp8": import_module("thunder_te.recipe_plugin").FP8}


@hookimpl
def thunder_pipeline(pipeline: Any, options: Mapping[str, Any]) -> None:
    """Add the stage that refuses delayed scaling without a place for its state."""
    import_module("thunder_te.transform").add_stages(pipeline)


@hookimpl
def thunder_cache_state() -> Mapping[str, Hashable]:
    """Return the recipe in force, on which traces depend."""
    return guarded_state()
