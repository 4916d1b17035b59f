"""Documented import paths and the distributions that provide them.

This is the only place in core that knows first-party distributions by name.
"""

from __future__ import annotations

from typing import Final

__all__ = ["DOCUMENTED", "DOCUMENTED_RECIPES", "FIRST_PARTY"]

DOCUMENTED: Final[dict[str, str]] = {
    "thunder.distributed": "thunder-distributed",
    "thunder.dynamo": "thunder-inductor",
    "thunder.benchmarks": "thunder-benchmarks",
    "thunder.tests": "thunder-benchmarks",
    "thunder.executors.nvfuserex": "thunder-nvfuser",
    "thunder.executors.torch_compile": "thunder-inductor",
    "thunder.executors.transformer_engineex": "thunder-te",
    "thunder.executors.tritonex": "thunder-triton",
    "thunder.transforms.quantization": "thunder-bnb",
    "thunder.transforms.materialization": "thunder-transforms",
    "thunder.transforms.cudagraph": "thunder-transforms",
    "thunder.transforms.autocast": "thunder-transforms",
    "thunder.transforms.MaterializationTransform": "thunder-transforms",
    "thunder.transforms.CUDAGraphTransform": "thunder-transforms",
}
"""Documented path → distribution."""

FIRST_PARTY: Final = frozenset(DOCUMENTED.values())

DOCUMENTED_RECIPES: Final[dict[str, str]] = {
    "ddp": "thunder.distributed",
    "fsdp": "thunder.distributed",
    "fp8": "thunder.executors.transformer_engineex",
    "quantize-int4": "thunder.transforms.quantization",
    "reduce-overhead": "thunder.transforms.cudagraph",
}
"""Documented plugin of recipes → the documented path that the same package provides."""
