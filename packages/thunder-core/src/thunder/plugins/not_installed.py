"""Documented import paths that packages provide, and the first-party distributions.

This is the only place in core that knows first-party distributions by name. Messages name paths and subjects:
a distribution of the expected name, on an index of packages, may be a stranger's.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DOCUMENTED", "DOCUMENTED_RECIPES", "FIRST_PARTY", "not_installed_hint"]

DOCUMENTED: Final[dict[str, str]] = {
    "thunder.distributed": "data and tensor parallelism",
    "thunder.dynamo": "a backend of torch.compile",
    "thunder.benchmarks": "benchmarks",
    "thunder.tests": "test models",
    "thunder.executors.apexex": "the apex executor",
    "thunder.executors.cudnnex": "the cudnn executor",
    "thunder.executors.fa3ex": "the fa3 executor",
    "thunder.executors.nvfuserex": "the nvfuser executor",
    "thunder.executors.nvfuserex_impl": "the nvfuser executor",
    "thunder.executors.sdpaex": "the sdpa executor",
    "thunder.executors.torch_compile": "the torchcompile executor",
    "thunder.executors.transformer_engineex": "the transformer_engine executor",
    "thunder.executors.triton_crossentropy": "a cross entropy in Triton",
    "thunder.executors.tritonex": "the triton executor",
    "thunder.transforms.autocast": "autocast as a transform",
    "thunder.transforms.constant_folding": "constant folding",
    "thunder.transforms.cudagraph": "CUDA graphs",
    "thunder.transforms.extraction_only_prologue_transform": "a transform of prologues",
    "thunder.transforms.materialization": "the materialisation of weights",
    "thunder.transforms.prune_prologue_checks": "a transform of prologues",
    "thunder.transforms.qlora": "adapters of quantised weights",
    "thunder.transforms.quantization": "quantised weights",
    "thunder.transforms.tensor_subclasses": "the flattening of tensor subclasses",
    "thunder.transforms.CPUOffloading": "intermediate results in CPU memory",
    "thunder.transforms.CUDAGraphTransform": "CUDA graphs",
    "thunder.transforms.ConstantFolding": "constant folding",
    "thunder.transforms.MaterializationTransform": "the materialisation of weights",
}
"""Documented path → its subject."""

DOCUMENTED_RECIPES: Final[dict[str, str]] = {
    "ddp": "thunder.distributed",
    "fsdp": "thunder.distributed",
    "fp8": "thunder.executors.transformer_engineex",
    "quantize-int4": "thunder.transforms.quantization",
    "reduce-overhead": "thunder.transforms.cudagraph",
}
"""Documented plugin of recipes → the documented path that the same package provides."""

FIRST_PARTY: Final = frozenset(
    {
        *("thunder-benchmarks", "thunder-bnb", "thunder-distributed", "thunder-inductor", "thunder-nvfuser"),
        *("thunder-te", "thunder-transforms", "thunder-triton"),
    }
)


def not_installed_hint(path: str) -> str:
    """Return what to do about a documented path that no installed package provides."""
    return f"Install a package that provides {path}: {DOCUMENTED[path]}."
