"""Parts of parameters as DTensors of torch, whose memory they are, and back."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from weakref import WeakValueDictionary

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.placement_types import _StridedShard

from thunder.core.errors import UnsupportedProgram

from .expert_modules import OwnedLayout
from .layouts import Layout
from .parts_in_use import layouts_in_parts
from .process_groups import group_named
from .tensor_layouts import TensorLayout

__all__ = ["accepted", "as_dtensor", "part_of_value", "presented"]

#: the device and the groups of a mesh → the mesh, while there are DTensors on it: it holds the groups
_meshes: Final[WeakValueDictionary[tuple[Any, ...], DeviceMesh]] = WeakValueDictionary()


def presented(model: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state in use of a compiled module, with parts of parameters as DTensors on their memory.

    A tied parameter is one object under each of its names. What another process has as a whole is left out.
    Raises UnsupportedProgram for a part that was stored in another form after it was divided.
    """
    layouts, result = layouts_in_parts(model), {}
    tied: dict[tuple[int, ...], Any] = {}
    for name, value in state.items():
        in_parts = layouts.get(name, ())
        if not in_parts or not isinstance(value, torch.Tensor) or isinstance(value, DTensor) or value.is_meta:
            result[name] = value
        elif not _is_elsewhere(in_parts):
            place = value.data_ptr(), value.storage_offset(), *value.shape
            if place not in tied:
                _check_form(in_parts, value)
                tied[place] = as_dtensor(in_parts, value.detach())
            result[name] = tied[place]
    return result


def accepted(model: Any, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state to use of a compiled module from DTensors, whole tensors and parts.

    Every process has to call it: a DTensor that is laid out in another way is gathered.
    """
    result = dict(state)
    for name, layouts in layouts_in_parts(model).items():
        in_use = model.get_parameter(name)
        if name in result and isinstance(result[name], torch.Tensor):
            result[name] = part_of_value(layouts, in_use, result[name])
        elif name not in result and _is_elsewhere(layouts):
            result[name] = in_use.detach()
    metadata = getattr(state, "_metadata", None)
    if metadata is None:
        return result
    versioned: OrderedDict[str, Any] = OrderedDict(result)
    versioned.__dict__["_metadata"] = metadata  # the versions of modules, where torch reads them
    return versioned


def part_of_value(layouts: Sequence[Any], part: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return what this process has of a value, which is laid out as a part is: a DTensor, whole, or a part.

    A tensor of another shape is returned as it is.
    """
    if isinstance(value, DTensor):
        own: Any = None if part.is_meta or _is_whole(layouts) else as_dtensor(layouts, part.detach())
        if own is not None and own.placements == value.placements and own.device_mesh == value.device_mesh:
            padded = torch.zeros_like(part, dtype=value.dtype)
            memory: Any = as_dtensor(layouts, padded)
            memory.to_local().copy_(value.to_local())
            return padded
        value = value.full_tensor()
    elif value.shape == part.shape:
        return value
    rows = (1,) if layouts[0].shape == () else layouts[0].shape
    if tuple(value.shape) not in (layouts[0].shape, rows):
        return value
    for layout in layouts:
        value = layout.shard(value.reshape(layout.shape))
    return value


def _check_form(layouts: Sequence[Any], part: torch.Tensor) -> None:
    layout = layouts[-1]
    if not isinstance(layout, OwnedLayout) and tuple(part.shape) != tuple(layout.shard_shape):
        raise UnsupportedProgram(
            f"{layout.name} was stored in another form after it was divided: DTensor has no such layout",
            found={"part": tuple(layout.shard_shape), "in use": tuple(part.shape)},
            hint="original_state_dict() gathers the state dict of the model; state_dict(keep_vars=True) has "
            "what this process has.",
        )


def _is_whole(layouts: Iterable[Any]) -> bool:
    return any(isinstance(layout, OwnedLayout) for layout in layouts)


def _is_elsewhere(layouts: Iterable[Any]) -> bool:
    """Return whether another process has all of a parameter."""
    return any(isinstance(layout, OwnedLayout) and not layout.is_here for layout in layouts)


def as_dtensor(layouts: Sequence[Any], part: torch.Tensor) -> torch.Tensor:
    """Return the whole parameter as a DTensor; the part of this process is its memory.

    `layouts` are those in which the parameter is in parts, in the order of the transforms. A scalar is one
    row. What one process has as a whole is a plain tensor. Raises UnsupportedProgram for a parameter whose
    uneven parts are sharded along the same dimension:
    DTensor has no layout for it.
    """
    layouts = [layout for layout in layouts if not isinstance(layout, OwnedLayout)]
    if not layouts:
        return part
    if len(layouts) == 1:
        (layout,) = layouts
        mesh = _mesh([layout], part.device.type)
        return _dtensor(
            _in_order(layout, layout.valid(part)), mesh, [Shard(_dim(layout))], _shape(layout, part)
        )
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
    return _dtensor(local, _mesh([sharded, divided], part.device.type), [first, Shard(dim)], divided.shape)


def _dim(layout: Layout | TensorLayout) -> int:
    """Return the dimension of which a process has a part."""
    if isinstance(layout, TensorLayout):
        return layout.dim
    return layout.order[0] if layout.order else 0


def _in_order(layout: Layout | TensorLayout, local: torch.Tensor) -> torch.Tensor:
    """Return a view of a part, stored by decreasing stride, with the dimensions of the parameter."""
    if isinstance(layout, TensorLayout) or len(layout.order) != local.ndim:
        return local
    return local.permute(tuple(layout.order.index(dim) for dim in range(local.ndim)))


def _shape(layout: Layout | TensorLayout, part: torch.Tensor) -> tuple[int, ...]:
    """Return the shape of the whole parameter as it is stored."""
    return layout.shape or (1, *part.shape[1:])


def _mesh(layouts: Sequence[Layout | TensorLayout], device: str) -> DeviceMesh:
    """Return the mesh of one group, or of two, which have this process in common."""
    groups = [group_named(layout.members.group) for layout in layouts]
    key = device, *map(id, groups)
    mesh = _meshes.get(key)
    if mesh is None:
        if len(layouts) == 1:
            mesh = DeviceMesh.from_group(groups[0], device)
        else:
            sharded, divided = (layout.members for layout in layouts)
            own = sharded.ranks[sharded.rank]
            ranks = [[row + column - own for column in divided.ranks] for row in sharded.ranks]
            mesh = DeviceMesh.from_group(
                groups, device, mesh=torch.tensor(ranks), mesh_dim_names=("sharded", "divided")
            )
        _meshes[key] = mesh
    return mesh


def _dtensor(
    local: torch.Tensor, mesh: DeviceMesh, placements: Sequence[Any], shape: tuple[int, ...]
) -> DTensor:
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        local, mesh, placements, run_check=False, shape=torch.Size(shape), stride=stride
    )
