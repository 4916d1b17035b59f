"""bitsandbytes for thunder: linear layers whose weights are stored in 4 or 8 bits.

The plugin of the executor `quant_bnb`, of the transforms, and of the plugin of recipes "quantize-int4".
bitsandbytes itself is imported when weights are first quantised.
"""

from importlib import import_module
from typing import Any

from thunder.plugins import ExecutorSpec, TransformSpec, hookimpl

__all__ = ["thunder_executors", "thunder_recipes", "thunder_transforms"]


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """Declare the executor that has the operators of quantised weights."""
    return [
        ExecutorSpec(
            "quant_bnb",
            "thunder_bnb.operators:ex",
            requires=("bitsandbytes",),
            description="products with weights that bitsandbytes quantised",
        )
    ]


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """Declare the transforms, which `thunder.transforms.<Name>` imports."""
    return [
        TransformSpec(
            "BitsAndBytesLinearQuant4bit",
            "thunder_bnb.four_bit:BitsAndBytesLinearQuant4bit",
            description="weights of linear layers in 4 bits, nf4 or fp4",
        ),
        TransformSpec(
            "BitsAndBytesLinearQuant8bit",
            "thunder_bnb.eight_bit:BitsAndBytesLinearQuant8bit",
            description="weights of linear layers in int8, as LLM.int8()",
        ),
    ]


@hookimpl
def thunder_recipes() -> dict[str, type[Any]]:
    """Provide the plugin of recipes that stores weights in 4 bits."""
    return {"quantize-int4": import_module("thunder_bnb.recipe").QuantizeInt4}
