"""`find_mesh`: the layouts of a decoder on many devices that take the least time of those that fit."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from thunder.core.errors import InvalidArgument
from thunder.extend import byte_text

from ..collective_costs import collective_cost
from ..machines import Machine
from .clusters import cluster_named
from .decoders import decoder_of
from .mesh_layouts import MeshLayout, Training, layouts_of
from .mesh_memory import memory_of_layout
from .step_costs import FORMULAS, StepCosts

__all__ = ["MeshEstimate", "Meshes", "estimate_mesh", "find_mesh"]


@dataclass(frozen=True, kw_only=True)
class MeshEstimate:
    """What a step of a layout is estimated to take on each device. `str()` is a summary.

    Attributes:
        layout: the mesh, and how a step is divided.
        parts: seconds of a step by part; `FORMULAS` has how each is computed.
        memory: bytes of the device that needs the most, by what they are for.
        tokens: of a step, of all devices.
        mfu: the operations that the training of these tokens needs, of the devices' peak; repeated ones do
            not count, and of attention half of the positions.
        costs: of blocks and stages.
    """

    layout: MeshLayout
    parts: Mapping[str, float]
    memory: Mapping[str, float]
    tokens: int
    mfu: float
    costs: StepCosts

    @property
    def seconds(self) -> float:
        """The time of a step."""
        return sum(self.parts.values())

    @property
    def peak(self) -> float:
        """The bytes of the device that needs the most."""
        return sum(self.memory.values())

    @property
    def tokens_per_second(self) -> float:
        """The tokens of a device in a second."""
        return self.tokens / self.seconds / self.layout.devices

    def __str__(self) -> str:
        rows = [f"{self.layout}", f"memory {byte_text(round(self.peak))}"]
        rows += [f"  {name:14}{byte_text(round(n)):>14}" for name, n in self.memory.items()]
        rows += [
            f"step {self.seconds:.3f} s, {self.tokens_per_second:.0f} tokens/s of each, MFU {self.mfu:.1%}"
        ]
        rows += [f"  {name:14}{seconds:>12.4f} s" for name, seconds in self.parts.items() if seconds]
        return "\n".join(rows)

    def explain(self) -> str:
        """Return the figures with their formulas, and the values of what is in them."""
        d, layout, training, machine = (
            self.costs.decoder,
            self.layout,
            self.costs.training,
            self.costs.machine,
        )
        symbols = {
            "t": self.costs.tokens(layout),
            "T": layout.tensor,
            "w": d.width,
            "q": d.queries,
            "k": d.keys,
            "h": d.hidden,
            "V": d.vocabulary,
            "c": self.costs.item,
            "p": d.products,
            "F": f"{machine.efficiency * machine.flops[training.products or training.dtype]:.3g}",
            "M": f"{machine.bandwidth:.3g}",
            "microbatches": layout.microbatches(training.batch),
        }
        lines = [str(self), "", ", ".join(f"{name} = {value}" for name, value in symbols.items())]
        lines += [f"{name}: {formula}" for name, formula in FORMULAS.items() if self.parts[name]]
        lines += ["", "collectives, ms of one of a block:"]
        lines += self._collectives()
        return "\n".join(lines)

    def _collectives(self) -> list[str]:
        d, layout, item = self.costs.decoder, self.layout, self.costs.item
        block, lines = d.products / layout.tensor, []
        between = item * self.costs.tokens(layout) * d.width
        rows = (
            ("tensor", "all_gather", ("tensor",), between),
            ("context", "rotate", ("context",), between // d.width * 2 * d.keys / layout.tensor),
            ("pipeline", "send", ("pipeline",), between / layout.tensor),
            ("shards", "all_gather", ("shards", "context"), item * block if layout.sharers > 1 else 0),
        )
        for name, kind, dimensions, nbytes in rows:
            span = self.costs.network.span(layout.ranks(*dimensions))
            if span.size == 1 or not nbytes:
                continue
            cost = collective_cost(kind, nbytes, span, self.costs.network)
            lines.append(
                f"  {name:10}{kind:12}{byte_text(round(nbytes)):>12} of {span.size:5} "
                f"{self.costs.network.name_of(span):16}{cost.seconds * 1e3:9.3f} by {cost.algorithm}"
            )
        return lines


class Meshes(tuple[MeshEstimate, ...]):
    """Layouts, the fastest first; their text is a table."""

    __slots__ = ()

    def __str__(self) -> str:
        head = ("layout", "memory", "step, s", "computing", "again", "tensor", "waiting", "bubble", "other",
                "tokens/s", "MFU")  # fmt: skip
        rows = [_row(estimate) for estimate in self]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            )
            for row in (head, *rows)
        ]
        return "\n".join(lines)


def _row(estimate: MeshEstimate) -> tuple[str, ...]:
    parts, seconds = estimate.parts, estimate.seconds
    shares = {
        "computing": sum(parts[name] for name in ("products", "attention", "elementwise", "head")),
        "again": parts["again"],
        "tensor": parts["tensor"],
        "waiting": parts["waiting"] + parts["data"],
        "bubble": parts["bubble"],
        "other": parts["optimizer"] + parts["stragglers"],
    }
    return (
        str(estimate.layout),
        f"{estimate.peak / 2**30:.1f} GiB",
        f"{seconds:.3f}",
        *(f"{share / seconds:.0%}" for share in shares.values()),
        f"{estimate.tokens_per_second:.0f}",
        f"{estimate.mfu:.1%}",
    )


def _estimated(costs: StepCosts, layout: MeshLayout, memory: Mapping[str, float]) -> MeshEstimate:
    training, parts = costs.training, costs.parts(layout)
    needed = training.tokens * costs.decoder.flops_of_token(training.length)
    peak = costs.machine.flops[training.dtype] * layout.devices
    return MeshEstimate(
        layout=layout,
        parts=parts,
        memory=memory,
        tokens=training.tokens,
        mfu=needed / peak / sum(parts.values()),
        costs=costs,
    )


def estimate_mesh(
    model: Any, layout: MeshLayout, training: Training, machine: Machine | str = "h100"
) -> MeshEstimate:
    """Return what a step of one layout is estimated to take.

    Args:
        model: what `find_mesh` takes.
        machine: a Machine, or the name of a cluster.

    Raises InvalidArgument for a batch that the layout does not divide.
    """
    decoder = decoder_of(model)
    if training.batch % (layout.data * layout.microbatch):
        raise InvalidArgument(
            f"a batch of {training.batch} sequences has no whole number of microbatches",
            found={"of their own data": layout.data, "microbatch": layout.microbatch},
        )
    chosen = cluster_named(machine)[0] if isinstance(machine, str) else machine
    costs = StepCosts(decoder, training, chosen)
    return _estimated(costs, layout, memory_of_layout(decoder, layout, training))


def find_mesh(
    model: Any,
    devices: int,
    *,
    batch: int,
    length: int,
    device: str = "h100",
    machine: Machine | None = None,
    memory: int | None = None,
    headroom: float = 0.1,
    fixed: Mapping[str, Any] | None = None,
    most: int = 5,
    **training: Any,
) -> Meshes:
    """Return the layouts in which a step takes the least time, of those that fit the memory.

    Nothing is compiled and nothing runs. All layouts of `layouts_of` are compared: divisions of the devices
    into replicas, shards, pipeline, context and tensor; microbatches, schedules, checkpointing. Of each mesh
    the result has the fastest. Layouts whose lower bound is above the best are not simulated: the result is
    that of trying all (branch and bound, Land and Doig, 1960).

    Args:
        model: a `Decoder`, the name of one, a configuration of transformers or litgpt, or a module with one,
            which may be on the meta device.
        devices: their number.
        batch: sequences of a step, of all devices.
        length: tokens of a sequence.
        device: the name of a cluster, `CLUSTERS`, or of its device.
        machine: arithmetic and links instead; None for those of the cluster.
        memory: bytes of a device; None for that of the device.
        headroom: the part of the memory that is left to libraries and to fragmentation.
        fixed: fields of `MeshLayout` with their values, as {"tensor": 8}.
        most: the number of meshes that are returned.
        training: the other fields of `Training`.

    Raises InvalidArgument if no layout fits, for arguments that are not known, and for a number of devices or
    sequences below one.
    """
    for name, value in (("devices", devices), ("batch", batch), ("length", length), ("most", most)):
        if type(value) is not int or value < 1:
            raise InvalidArgument(f"{name}={value!r} is not a number of {name}")
    decoder = decoder_of(model)
    known_machine, known_memory = (
        cluster_named(device) if machine is None or memory is None else (machine, memory)
    )
    machine, memory = machine or known_machine, known_memory if memory is None else memory
    costs = StepCosts(decoder, Training(batch=batch, length=length, **training), machine)
    found, seen = _fastest(costs, layouts_of(decoder, costs.training, devices, fixed), memory, headroom, most)
    if not found:
        raise InvalidArgument(
            "no layout fits the memory of the devices"
            if seen
            else "no layout divides the model and its batch",
            found={
                "devices": devices,
                "memory for it": byte_text(round(memory * (1 - headroom))),
                **({"needed at least": byte_text(round(seen))} if seen else {"batch": batch}),
            },
            hint="Use more devices, a smaller batch or length, or other values of fixed=.",
        )
    return Meshes(found)


def _fastest(
    costs: StepCosts, layouts: Iterable[MeshLayout], memory: int, headroom: float, most: int
) -> tuple[list[MeshEstimate], float]:
    """Return the fastest layouts of different meshes that fit, and the least memory that was seen.

    Best first: the layout with the least bound is looked at next. Its bound is of computing alone; then, if
    it fits, of all but the order of its schedule; then it is the time. So nothing is simulated whose bound is
    above the last of the fastest.
    """
    limit, least = memory * (1 - headroom), 0.0
    waiting: list[tuple[float, int, MeshLayout, MeshEstimate | None]] = [
        (costs.least(layout, of_computing=True), i, layout, None) for i, layout in enumerate(layouts)
    ]
    heapq.heapify(waiting)
    bounded = dict[int, dict[str, float]]()  # those that fit, with their memory
    best: dict[tuple[tuple[str, int], ...], MeshEstimate] = {}
    while waiting and len(best) < most:
        _, i, layout, estimate = heapq.heappop(waiting)
        mesh = tuple(layout.mesh.items())
        if mesh in best:
            continue
        if estimate is not None:
            best[mesh] = estimate
        elif i in bounded:
            estimate = _estimated(costs, layout, bounded[i])
            heapq.heappush(waiting, (estimate.seconds, i, layout, estimate))
        else:
            needed = memory_of_layout(costs.decoder, layout, costs.training)
            peak = sum(needed.values())
            least = min(least or peak, peak)
            if peak <= limit:
                bounded[i] = needed
                heapq.heappush(waiting, (costs.least(layout), i, layout, None))
    return list(best.values()), least
