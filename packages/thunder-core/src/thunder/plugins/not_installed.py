"""Documented import paths that packages provide, and the first-party distributions.

This is the only place in core that knows first-party distributions by name. A message names the distribution
of a path that a first-party package provides, and else the path and its subject alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

__all__ = [
    "DOCUMENTED",
    "DOCUMENTED_HOOKS",
    "DOCUMENTED_RECIPES",
    "FIRST_PARTY",
    "Provider",
    "names_hint",
    "not_installed_hint",
]


class Provider(NamedTuple):
    """What a documented path is for, and the first-party distribution that provides it, or None."""

    subject: str
    distribution: str | None = None


DOCUMENTED: Final[dict[str, Provider]] = {
    "thunder.distributed": Provider("data and tensor parallelism", "thunder-distributed"),
    "thunder.core.patterns": Provider("patterns and rewrite rules", "thunder-transforms"),
    "thunder.dynamo": Provider("a backend of torch.compile", "thunder-inductor"),
    "thunder.benchmarks": Provider("benchmarks", "thunder-benchmarks"),
    "thunder.tests": Provider("test models", "thunder-benchmarks"),
    "thunder.testing": Provider("tests for authors of executors and transforms", "thunder-testing"),
    "thunder.executors.apexex": Provider("the apex executor"),
    "thunder.executors.cudnnex": Provider("the cudnn executor"),
    "thunder.executors.fa3ex": Provider("the fa3 executor"),
    "thunder.executors.nvfuserex": Provider("the nvfuser executor", "thunder-nvfuser"),
    "thunder.executors.nvfuserex_impl": Provider("the nvfuser executor", "thunder-nvfuser"),
    "thunder.executors.torch_compile": Provider("the torchcompile executor", "thunder-inductor"),
    "thunder.executors.transformer_engineex": Provider("the transformer_engine executor", "thunder-te"),
    "thunder.executors.triton_crossentropy": Provider("a cross entropy in Triton", "thunder-triton"),
    "thunder.executors.tritonex": Provider("the triton executor", "thunder-triton"),
    "thunder.transforms.autocast": Provider("autocast as a transform", "thunder-transforms"),
    "thunder.transforms.constant_folding": Provider("constant folding", "thunder-transforms"),
    "thunder.transforms.cudagraph": Provider("CUDA graphs", "thunder-transforms"),
    "thunder.transforms.extraction_only_prologue_transform": Provider(
        "a transform of prologues", "thunder-transforms"
    ),
    "thunder.transforms.materialization": Provider("weights made late", "thunder-transforms"),
    "thunder.transforms.prune_prologue_checks": Provider("a transform of prologues", "thunder-transforms"),
    "thunder.transforms.quantization": Provider("quantised weights", "thunder-bnb"),
    "thunder.transforms.tensor_subclasses": Provider("the flattening of tensor subclasses"),
    "thunder.transforms.CPUOffloading": Provider("intermediate results in CPU memory", "thunder-transforms"),
    "thunder.transforms.CUDAGraphTransform": Provider("CUDA graphs", "thunder-transforms"),
    "thunder.transforms.ConstantFolding": Provider("constant folding", "thunder-transforms"),
    "thunder.transforms.MaterializationTransform": Provider("weights made late", "thunder-transforms"),
}
"""Documented path → what provides it."""

DOCUMENTED_RECIPES: Final[dict[str, str]] = {
    "ddp": "thunder.distributed",
    "fsdp": "thunder.distributed",
    "fp8": "thunder.executors.transformer_engineex",
    "quantize-int4": "thunder.transforms.quantization",
    "reduce-overhead": "thunder.transforms.cudagraph",
}
"""Documented plugin of recipes → the documented path that the same package provides."""

DOCUMENTED_HOOKS: Final[dict[str, str]] = {"thunder_rewrites": "thunder.core.patterns"}
"""Documented hook that a package defines → the documented path that the package provides."""

FIRST_PARTY: Final = frozenset(
    f"thunder-{name}"
    for name in (
        *("autotune", "benchmarks", "bisect", "bnb", "distributed", "inductor", "migration", "nvfuser"),
        *("onednn", "report", "store", "te", "testing", "transforms", "triton"),
    )
)


def not_installed_hint(path: str) -> str:
    """Return what to do about a documented path that no installed package provides."""
    subject, distribution = DOCUMENTED[path]
    if distribution is None:
        return f"Install a package that provides {path}: {subject}."
    return f"pip install {distribution}, which provides {path}: {subject}."


def names_hint(plugins: Iterable[str]) -> str:
    """Return the end of an error on a name under `thunder` that no plugin provides."""
    hint = "Plugins are packages named thunder-<name>."
    if "migration" in plugins:
        return hint
    return f"{hint} pip install thunder-migration adds the names of lightning-thunder."
