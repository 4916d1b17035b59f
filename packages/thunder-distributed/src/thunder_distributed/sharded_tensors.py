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
        return _dtensor(layout.valid(part), mesh, [Shard(_dim(layout))], _shape(layout, part))
    divided, sharded = layouts  # layers or experts, and then their parts
    assert isinstance(sharded, Layout), "the parts of a divided parameter are sharded"
    dim = _dim(divided)
    if dim == 0 and divided.shape[0] % (divided.members.size * sharded.members.size):
        raise UnsupportedProgram(
            f"the rows of {divided.name} are divided unevenly over two groups: DTensor has no such layout",
            found={
                "rows": divided.shape[0],
                "processes": f"{sharded.members.size} x {divided.members.size}",
            },
            hint="StateDictOptions(full_state_dict=True) gathers the state dict of the model.",
        )
    local = sharded.valid(part)
    if dim != 0:
        local = divided.valid(local)
    first: Any = _StridedShard(0, split_factor=divided.members.size) if dim == 0 else Shard(0)
    return _dtensor(local, _grid(sharded, divided, part), [first, Shard(dim)], divided.shape)


def _dim(layout: Layout | TensorLayout) -> int:
    """Return the dimension of which a process has a part."""
    return layout.dim if isinstance(layout, TensorLayout) else 0


def _shape(layout: Layout | TensorLayout, part: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of the whole parameter as it is stored."""
    if isinstance(layout, TensorLayout) or (layout.shape and layout.order == tuple(range(len(layout.shape)))):
        return layout.shape
    return (layout.rows, *part.shape[1:])


def _grid(sharded: Layout, divided: Layout | TensorLayout, part: torch.Tensor) -> DeviceMesh:
    """Return the mesh of two groups, which have this process in common."""
    own = sharded.members.ranks[sharded.members.rank]
    ranks = [[row + column - own for column in divided.members.ranks] for row in sharded.members.ranks]
    groups = [group_named(layout.members.group) for layout in (sharded, divided)]
    return DeviceMesh.from_group(
        groups, part.device.type, mesh=torch.tensor(ranks), mesh_dim_names=("sharded", "divided")
    )


def _dtensor(
    local: torch.Tensor, mesh: DeviceMesh, placements: Sequence[Any], shape: tuple[int, ...]
) -> DTensor:
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
    )
