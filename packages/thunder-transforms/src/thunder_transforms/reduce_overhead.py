"""The plugin of recipes "reduce-overhead"."""

from __future__ import annotations

import thunder
from thunder_transforms.cuda_graphs import CUDAGraphTransform

__all__ = ["ReduceOverhead"]


class ReduceOverhead(thunder.Plugin):
    """Kernels launched together by CUDA graphs: `thunder.compile(model, plugins="reduce-overhead")`."""

    policy = thunder.recipes.PluginPolicy.POST

    def setup_transforms(self) -> list[thunder.Transform]:
        """Return the transform that captures CUDA graphs."""
        return [CUDAGraphTransform()]
