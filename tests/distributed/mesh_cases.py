"""Training over two dimensions of a mesh of four processes."""

from __future__ import annotations

from torch.distributed.device_mesh import init_device_mesh

from distributed.launching import CASES
from distributed.training_cases import STRATEGIES, trained, unsynchronised
from thunder.distributed import FSDPBucketingStrategy, FSDPType, ddp, fsdp


def _mesh_trained(level: FSDPType, accumulated: int = 1):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    bucketing = FSDPBucketingStrategy.BLOCK
    sharded = fsdp(process_group=mesh["shard"], sharding_strategy=level, bucketing_strategy=bucketing)
    transforms = [sharded, ddp(process_group=mesh["replicate"])]
    return trained(transforms, accumulated=accumulated, local=unsynchronised)


for _level in FSDPType:
    CASES[f"mesh {_level.name}"] = lambda _level=_level: _mesh_trained(_level)
CASES["mesh accumulated"] = lambda: _mesh_trained(FSDPType.ZERO3, accumulated=2)

NAMES = (*(f"trained {name}" for name in STRATEGIES), *(f"mesh {level.name}" for level in FSDPType))
