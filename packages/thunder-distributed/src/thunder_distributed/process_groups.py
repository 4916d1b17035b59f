"""Process groups: which one a transform uses, and their names, by which traces refer to them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d
from torch.distributed.device_mesh import DeviceMesh

from thunder.core.errors import InvalidArgument

__all__ = [
    "Members",
    "NoProcessGroup",
    "copy_default_process_group",
    "group_named",
    "group_size",
    "members_of",
    "process_device",
    "timeout_of",
]


class NoProcessGroup(InvalidArgument, RuntimeError):
    """Something is distributed over processes, and there is no process group."""


@dataclass(frozen=True)
class Members:
    """The processes of a group: its name, their global ranks, and the position of this one."""

    group: str
    ranks: tuple[int, ...]
    rank: int

    @property
    def size(self) -> int:
        """The number of processes."""
        return len(self.ranks)


def members_of(process_group: Any, purpose: str) -> Members:
    """Return the processes of a group, of a device mesh of one dimension, or of the default group (None).

    `purpose` is the name of the caller, for errors. Raises NoProcessGroup if there is none, and
    InvalidArgument for a mesh of several dimensions, for another object, and for a group without this
    process.
    """
    if not dist.is_available() or not dist.is_initialized():
        raise NoProcessGroup(
            f"{purpose} distributes a program over processes, and no process group is initialised",
            hint="Call torch.distributed.init_process_group() before thunder.jit, in a program that torchrun "
            "starts: torchrun --nproc-per-node=2 train.py.",
        )
    if isinstance(process_group, DeviceMesh):
        if process_group.ndim != 1:
            raise InvalidArgument(
                f"{purpose} takes one dimension of a device mesh, and received {process_group}",
                hint="Select a dimension by its name: mesh['dp'].",
            )
        process_group = process_group.get_group()
    group = dist.group.WORLD if process_group is None else process_group
    if group == dist.GroupMember.NON_GROUP_MEMBER:
        raise InvalidArgument(
            f"{purpose} received a process group that this process is not a member of",
            found={"rank": dist.get_rank()},
            hint="torch.distributed.new_group returns the group to its members alone: pass each process the "
            "group that it is in, or a dimension of a DeviceMesh.",
        )
    if not isinstance(group, dist.ProcessGroup):
        raise InvalidArgument(
            f"{purpose} received process_group={process_group!r}",
            hint="Pass a ProcessGroup, one dimension of a DeviceMesh, or None for the default group.",
        )
    return Members(str(group.group_name), tuple(dist.get_process_group_ranks(group)), dist.get_rank(group))


def group_named(name: str) -> dist.ProcessGroup:
    """Return the process group of a name.

    Raises NoProcessGroup if there is none: the group was destroyed, or belongs to another process.
    """
    try:
        group: dist.ProcessGroup = distributed_c10d._resolve_process_group(name)  # type: ignore[attr-defined, arg-type]
        return group
    except (RuntimeError, ValueError, LookupError) as error:
        raise NoProcessGroup(
            f"there is no process group {name!r} in this process",
            hint="Call torch.distributed.init_process_group() first, and compile again after the group was "
            "destroyed.",
        ) from error


def group_size(name: str) -> int:
    """Return the number of processes in the group of a name."""
    return dist.get_world_size(group_named(name))


def timeout_of(group: dist.ProcessGroup) -> float:
    """Return after how many seconds a collective of a group fails."""
    backends: list[Any] = [group._get_backend(device) for device in group._device_types]
    options = [getattr(backend, "options", None) for backend in backends]
    timeouts = [o._timeout for o in options if o is not None and hasattr(o, "_timeout")]
    store: Any = distributed_c10d._get_default_store()
    return float(min(timeouts, default=store.timeout).total_seconds())


def process_device() -> torch.device:
    """Return the device of this process: its accelerator, or the CPU if there is none.

    Of several accelerators it is that of `LOCAL_RANK`, which torchrun sets, else the current one.
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    if accelerator is None:
        return torch.device("cpu")
    local = int(os.environ.get("LOCAL_RANK", -1))
    is_there = 0 <= local < torch.accelerator.device_count()
    index = local if is_there else torch.accelerator.current_device_index()
    return torch.device(accelerator.type, index)


def copy_default_process_group() -> dist.ProcessGroup:
    """Return a new process group with the ranks and the backend of the default one.

    Every process has to call it. Raises NoProcessGroup if there is no default group.
    """
    members = members_of(None, "copy_default_process_group")
    group = dist.new_group(list(members.ranks), backend=dist.get_backend())
    assert isinstance(group, dist.ProcessGroup), "each process is a member of the default group"
    return group
