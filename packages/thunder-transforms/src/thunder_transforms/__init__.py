"""Transforms of programs and weights, by name as `thunder.transforms.<Name>`.

Thunder imports this module when it looks for plugins; the module of a transform is imported when the
transform is first used.
"""

from importlib import import_module
from typing import Any, Final

from thunder.plugins import TransformSpec, hookimpl

__all__ = ["TRANSFORMS", "thunder_recipes", "thunder_transforms"]

#: the name of each transform → the module that defines a class of this name
TRANSFORMS: Final[dict[str, str]] = {
    "CPUOffloading": "thunder_transforms.cpu_offloading",
    "CUDAGraphTransform": "thunder_transforms.cuda_graphs",
    "ConstantFolding": "thunder_transforms.constant_calls",
    "DebugTransform": "thunder_transforms.debug_transform",
    "ExtractionOnlyPrologueTransform": "thunder_transforms.extraction_only",
    "LORATransform": "thunder_transforms.lora",
    "MaterializationTransform": "thunder_transforms.materialization",
    "NonFiniteDetector": "thunder_transforms.non_finite",
    "NvtxProfileTransform": "thunder_transforms.nvtx_ranges",
    "ProfileTransform": "thunder_transforms.profile_transform",
    "PrunePrologueChecks": "thunder_transforms.prune_checks",
}


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """Declare the transforms, which `thunder.transforms.<Name>` imports."""
    return [TransformSpec(name, f"{module}:{name}") for name, module in TRANSFORMS.items()]


@hookimpl
def thunder_recipes() -> dict[str, type[Any]]:
    """Provide the plugin of recipes that captures CUDA graphs."""
    return {"reduce-overhead": import_module("thunder_transforms.reduce_overhead").ReduceOverhead}
