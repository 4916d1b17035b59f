"""Parts of parameters as DTensors of torch, whose memory they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from thunder.core.errors import UnsupportedProgram

from .layouts import Layout
from .process_groups import group_named
from .tensor_layouts import TensorLayout

__all__ = ["as_dtensor"]


def as_dtensor(layouts: Sequence[Layout | TensorLayout], part: torch.Tensor) -> DTensor:
    """Return the whole parameter as a DTensor; the part of this process is its memory.

    `layouts` are those in which the parameter is in parts, in the order of the transforms. A scalar is one
    row. Raises UnsupportedProgram for a parameter whose uneven parts are sharded along the same dimension:
    DTensor has no layout for it.
    """
    if len(layouts) == 1:
        (layout,) = layouts
        mesh = DeviceMesh.from_group(group_named(layout.members.group), part.device.type)
        dim = layout.dim if isinstance(layout, TensorLayout) else 0
        return _dtensor(layout.valid(part), mesh, [Shard(dim)], _shape(layout, part))
    tensor, sharded = layouts
    assert isinstance(tensor, TensorLayout), "a parameter is divided before its parts are sharded"
    assert isinstance(sharded, Layout), "the parts of a divided parameter are sharded"
    if tensor.dim == 0 and tensor.shape[0] % (tensor.members.size * sharded.members.size):
        raise UnsupportedProgram(
            f"the rows of {tensor.name} are divided unevenly over two groups: DTensor has no such layout",
            found={
                "rows": tensor.shape[0],
                "processes": f"{sharded.members.size} x {tensor.members.size}",
            },
            hint="StateDictOptions(full_state_dict=True) gathers the state dict of the model.",
        )
    local = sharded.valid(part)
    if tensor.dim != 0:
        local = tensor.valid(local)
    first: Any = _StridedShard(0, split_factor=tensor.members.size) if tensor.dim == 0 else Shard(0)
    return _dtensor(local, _grid(sharded, tensor, part), [first, Shard(tensor.dim)], tensor.shape)


def _shape(layout: Layout | TensorLayout, part: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of the whole parameter as it is stored."""
    if isinstance(layout, TensorLayout) or (layout.shape and layout.order == tuple(range(len(layout.shape)))):
        return layout.shape
    return (layout.rows, *part.shape[1:])


def _grid(sharded: Layout, tensor: TensorLayout, part: torch.Tensor) -> DeviceMesh:
    """Return the mesh of two groups, which have this process in common."""
    own = sharded.members.ranks[sharded.members.rank]
    ranks = [[row + column - own for column in tensor.members.ranks] for row in sharded.members.ranks]
    groups = [group_named(layout.members.group) for layout in (sharded, tensor)]
    return DeviceMesh.from_group(
        groups, part.device.type, mesh=torch.tensor(ranks), mesh_dim_names=("sharded", "tensor")
    )


def _dtensor(
    local: torch.Tensor, mesh: DeviceMesh, placements: Sequence[Any], shape: tuple[int, ...]
) -> DTensor:
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
    )
