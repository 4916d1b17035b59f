"""Linear layers in FP8, by Transformer Engine or by a reference of its recipes in torch."""

from thunder_te.active_recipe import autocast
from thunder_te.executors import fp8_reference_ex, transformer_engine_ex
from thunder_te.inference import TEInference8BitTransform, get_te_inference_executor
from thunder_te.recipes import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    Format,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
)
from thunder_te.transform import TransformerEngineTransform

__all__ = [
    "DelayedScaling",
    "Float8BlockScaling",
    "Float8CurrentScaling",
    "Format",
    "MXFP8BlockScaling",
    "NVFP4BlockScaling",
    "TEInference8BitTransform",
    "TransformerEngineTransform",
    "autocast",
    "fp8_reference_ex",
    "get_te_inference_executor",
    "transformer_engine_ex",
]
