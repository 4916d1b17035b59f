"""Transforms of programs and weights, by name as `thunder.transforms.<Name>`.

Thunder imports this module when it looks for plugins; the module of a transform is imported when the
transform is first used.
"""

from collections.abc import Iterable
from importlib import import_module
from typing import Any, Final

from thunder.extend import Rank
from thunder.plugins import ExecutorSpec, Option, PluginManager, TransformSpec, hookimpl
from thunder_transforms.byte_counts import BytesOption

__all__ = [
    "TRANSFORMS",
    "thunder_configure",
    "thunder_executors",
    "thunder_options",
    "thunder_pipeline",
    "thunder_recipes",
    "thunder_rewrites",
    "thunder_transforms",
]

#: the name of each transform → the module that defines a class of this name
TRANSFORMS: Final[dict[str, str]] = {
    "CPUOffloading": "thunder_transforms.cpu_offloading",
    "CUDAGraphTransform": "thunder_transforms.cuda_graphs",
    "ConstantFolding": "thunder_transforms.constant_calls",
    "DebugTransform": "thunder_transforms.debug_transform",
    "ExtractionOnlyPrologueTransform": "thunder_transforms.extraction_only",
    "Freezing": "thunder_transforms.frozen.freezing",
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
def thunder_executors() -> list[ExecutorSpec]:
    """Declare the executor of losses, which `thunder.jit` uses by default."""
    return [
        ExecutorSpec(
            "losses",
            "thunder_transforms.losses.executor:ex",
            rank=Rank.KERNEL,
            default=True,
            description="cross entropy of linear layers in chunks of rows, on CPUs",
        )
    ]


@hookimpl(optionalhook=True)  # the hook is the package's own
def thunder_rewrites(executors: frozenset[str]) -> Iterable[Any]:
    """Provide the rules by which programs use the operators of losses."""
    if "losses" not in executors:
        return ()
    executor = import_module("thunder_transforms.losses.executor")
    rules: Iterable[Any] = import_module("thunder_transforms.losses.rules").linear_cross_entropy_rules(
        executor.linear_cross_entropy, executor.refusal, package="thunder_transforms", executor="losses"
    )
    return rules


@hookimpl
def thunder_configure(manager: PluginManager) -> None:
    """Define the hook by which packages bring rewrite rules."""
    package_rules = import_module("thunder_transforms.rewriting.package_rules")
    manager.add_hooks(package_rules, named={"rewrites": package_rules.named_rules})


@hookimpl
def thunder_recipes() -> dict[str, type[Any]]:
    """Provide the plugin of recipes that captures CUDA graphs, and the recipe of inference."""
    return {
        "inference": import_module("thunder_transforms.frozen.recipe").Inference,
        "reduce-overhead": import_module("thunder_transforms.reduce_overhead").ReduceOverhead,
    }


@hookimpl
def thunder_options() -> list[Option]:
    """Declare the options of `thunder.jit` that the package reads."""
    return [
        BytesOption(
            "memory_budget",
            int | str | None,
            None,
            "The most bytes that a training step may need at once, with weights, arguments and gradients, "
            'such as 800_000_000 or "1.5 GiB". What does not fit is computed again in the backward, or is in '
            "the memory of the CPU meanwhile.",
        )
    ]


@hookimpl
def thunder_pipeline(pipeline: Any, options: Any) -> None:
    """Add the stage of rewrite rules, and those of `memory_budget`, if it is set."""
    import_module("thunder_transforms.rewriting.rewrite_transform").add_stage(pipeline)
    if options.get("memory_budget") is not None:
        import_module("thunder_transforms.memory_budget").add_stages(pipeline, options)
