"""`thunder.distributed.plan`: the program of one process among many, without running it and without them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.testing._internal.distributed.fake_pg import FakeStore

import thunder
from thunder.core.errors import InvalidArgument
from thunder.extend import byte_text
from thunder.plugins import DeviceProfile

from .communication import Communication, collectives_of
from .machines import Machine, machine_named
from .plan_memory import memory_at_peak
from .process_groups import group_named
from .timeline import Timeline, predicted

__all__ = ["DistributedPlan", "LinkTraffic", "plan"]

Transforms = Sequence[thunder.Transform] | Callable[[DeviceMesh], Sequence[thunder.Transform]]


@dataclass(frozen=True)
class LinkTraffic:
    """A count of what a process sends by one collective over one kind of link, in a call and its backward."""

    collective: str
    #: the outermost level of the network that connects the group, as "within a node" or "between nodes"
    link: str
    count: int
    #: of the whole tensors
    nbytes: int
    sent: int


@dataclass(frozen=True, kw_only=True)
class DistributedPlan:
    """The program of one process of a mesh, and what it is predicted to take. `str()` is a summary.

    Attributes:
        plan: traces, ledger and memory of the process, as `thunder.plan` returns them.
        mesh: the dimensions of the mesh and their sizes, the outermost one first.
        rank: of the process.
        communication: its collectives.
        traffic: its bytes by collective and link.
        memory: bytes at the peak by category.
        forward: the time of the forward.
        backward: the time of the backward; None without one.
        optimizer: seconds of a step of an optimizer that reads and writes each of its tensors once.
    """

    plan: thunder.Plan
    mesh: Mapping[str, int]
    rank: int
    communication: Communication
    traffic: tuple[LinkTraffic, ...]
    memory: Mapping[str, int]
    forward: Timeline
    backward: Timeline | None
    optimizer: float

    @property
    def peak(self) -> int:
        """The bytes of the process at the peak."""
        return sum(self.memory.values())

    @property
    def fits(self) -> bool | None:
        """Whether the peak is within the memory of the device; None if its size is not known."""
        device = self.plan.device
        return None if device is None or device.memory_bytes is None else self.peak <= device.memory_bytes

    @property
    def seconds(self) -> float:
        """The predicted time of a step: forward, backward and optimizer."""
        return self.forward.total + (self.backward.total if self.backward else 0.0) + self.optimizer

    @property
    def exposed(self) -> float:
        """The time of a step in which the process waits for collectives, in seconds."""
        return self.forward.exposed + (self.backward.exposed if self.backward else 0.0)

    def __str__(self) -> str:
        size = ", ".join(f"{name} {n}" for name, n in self.mesh.items())
        lines = [f"rank {self.rank} of {size}", f"peak      {byte_text(self.peak)}"]
        lines += [f"  {name:20} {byte_text(n):>14}" for name, n in self.memory.items() if n]
        lines += [
            f"{t.collective:15} {t.count:5} {t.link:14} {byte_text(t.sent):>14} sent" for t in self.traffic
        ]
        lines += [
            f"step      {self.seconds * 1e3:.3f} ms, of which {self.exposed * 1e3:.3f} ms are for collectives"
        ]
        return "\n".join(lines)

    __repr__ = __str__


def plan(
    fn: Any,
    /,
    *args: Any,
    mesh: Sequence[int] | Mapping[str, int],
    transforms: Transforms = (),
    device: DeviceProfile | str = "h100",
    machine: Machine | None = None,
    rank: int = 0,
    optimizer_tensors: int = 2,
    **options: Any,
) -> DistributedPlan:
    """Compile a module for one process of a mesh, run nothing, and predict memory, bytes and time of a step.

    The arguments of the call are those of this process; module and arguments may be meta tensors. No other
    process is needed. `thunder.plan` with a mesh is the same.

    Args:
        mesh: the sizes of the dimensions, the outermost first, or their names and sizes.
        transforms: those of `thunder.jit`, or a function that returns them for the DeviceMesh.
        device: the profile that checkers see, or its name, as for `thunder.plan`.
        machine: arithmetic and links; None for those that are known of the device.
        rank: of the process.
        optimizer_tensors: what an optimizer keeps for each parameter, in tensors of its size; AdamW has two.
        options: the others of `thunder.plan`.

    Raises InvalidArgument for a mesh that is none, for a process group that is initialised already unless it
    is a pretended one of this size, and for a device without figures.
    """
    sizes = _sizes(mesh)
    if machine is None:
        machine = machine_named(device if isinstance(device, str) else device.name)
    with _pretended(sizes, rank) as device_mesh:
        chosen = transforms(device_mesh) if callable(transforms) else transforms
        planned = thunder.plan(fn, *args, device=device, transforms=list(chosen), **options)
        return _as_distributed(planned, sizes, machine, optimizer_tensors)


def _as_distributed(
    planned: thunder.Plan, sizes: Mapping[str, int], machine: Machine, optimizer_tensors: int
) -> DistributedPlan:
    forward = planned.traces[-1]
    backward = planned.backward_traces[-1] if planned.backward_traces else None
    named = [(forward, "forward"), *([(backward, "backward")] if backward is not None else [])]
    communication = Communication(c for trace, name in named for c in collectives_of(trace, name))
    groups = {c.group for c in communication}
    ranks = {name: tuple(dist.get_process_group_ranks(group_named(name))) for name in groups}
    memory = memory_at_peak(planned.prologue_traces[-1], forward, backward, optimizer_tensors)
    # gradients are read; parameters and the optimizer's tensors are read and written
    touched = (3 + 2 * optimizer_tensors) * memory["parameters"] if backward is not None else 0
    return DistributedPlan(
        plan=planned,
        mesh=sizes,
        rank=dist.get_rank(),
        communication=communication,
        traffic=_traffic(communication, ranks, machine),
        memory=memory,
        forward=predicted(forward, ranks, machine),
        backward=predicted(backward, ranks, machine) if backward is not None else None,
        optimizer=touched / machine.bandwidth,
    )


def _traffic(
    communication: Communication, ranks: Mapping[str, tuple[int, ...]], machine: Machine
) -> tuple[LinkTraffic, ...]:
    """Return the bytes of collectives, added by name and link."""
    rows: dict[tuple[str, str], list[int]] = {}
    for c in communication:
        link = machine.links.name_of(machine.links.span(ranks[c.group]))
        row = rows.setdefault((c.name, link), [0, 0, 0])
        rows[c.name, link] = [row[0] + 1, row[1] + c.nbytes, row[2] + c.sent]
    return tuple(LinkTraffic(name, link, *row) for (name, link), row in rows.items())


def _sizes(mesh: Any) -> dict[str, int]:
    """Return the dimensions of a mesh by name."""
    if isinstance(mesh, Mapping):
        sizes = dict(mesh)
    elif isinstance(mesh, Sequence) and not isinstance(mesh, str):
        sizes = {f"dim{i}" if len(mesh) > 1 else "dp": size for i, size in enumerate(mesh)}
    else:
        sizes = {}
    if not sizes or not all(type(size) is int and size > 0 for size in sizes.values()):
        raise InvalidArgument(
            f"mesh={mesh!r} is not a mesh",
            hint="Write the sizes of its dimensions, (128, 8), or with names, {'outer': 128, 'inner': 8}.",
        )
    return sizes


@contextmanager
def _pretended(sizes: Mapping[str, int], rank: int) -> Iterator[DeviceMesh]:
    """Pretend to be one of the processes of a mesh."""
    count = math.prod(sizes.values())
    if not 0 <= rank < count:
        raise InvalidArgument(f"rank={rank!r} is not one of {count} processes")
    is_there = dist.is_initialized()
    if is_there and (
        dist.get_backend() != "fake" or dist.get_world_size() != count or dist.get_rank() != rank
    ):
        raise InvalidArgument(
            "a plan pretends to be one of many processes, and a process group is initialised already",
            found={"processes": dist.get_world_size(), "mesh": count},
            hint="Make the plan in a process of its own, or before init_process_group.",
        )
    if not is_there:
        dist.init_process_group("fake", rank=rank, world_size=count, store=FakeStore())
    try:
        yield init_device_mesh("cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    finally:
        if not is_there:
            dist.destroy_process_group()
