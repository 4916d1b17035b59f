"""The plugins of recipes "ddp" and "fsdp": `thunder.compile(model, plugins="fsdp")`."""

from __future__ import annotations

import thunder

from .full_sharding import FSDPTransform
from .replication import DDPTransform

__all__ = ["DDP", "FSDP"]


class DDP(thunder.Plugin):
    """Data parallelism over the default process group."""

    def setup_transforms(self) -> list[thunder.Transform]:
        """Return the transform that averages gradients."""
        return [DDPTransform()]


class FSDP(thunder.Plugin):
    """Fully sharded data parallelism over the default process group."""

    def setup_transforms(self) -> list[thunder.Transform]:
        """Return the transform that shards parameters."""
        return [FSDPTransform()]
