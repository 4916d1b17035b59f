"""The time of a block and of a step in a layout, by its parts (in seconds).

    t, T, w, q, k, h, V   as in `mesh_memory`;  c bytes of an element;  p elements of a block's matrices
    F     operations per second of products: the machine's peak * its efficiency
    M     bytes per second of a device's memory

A step is that of the schedule of its pipeline, whose actions take:

    forward   blocks * (products + attention + elementwise + tensor + waiting) + head
    backward  the same with the factors below, for gradients of inputs (B) and of parameters (W)

Times of collectives are those of the machine's network (`collective_costs`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from thunder.core.errors import InvalidArgument

from ..collective_costs import Cost, collective_cost, contended, joined
from ..machines import Machine
from ..networks import Span, expected_maximum, strided
from ..pipelines.schedules import Schedule, schedule_named
from .decoders import Decoder
from .mesh_layouts import ITEMSIZE, MeshLayout, Training
from .stages_of_ranks import RankParts, block_parameters, blocks_of_stages, parts_of_ranks

__all__ = ["FORMULAS", "Parts", "StepCosts"]

#: part of a step → its formula
FORMULAS: Mapping[str, str] = {
    "products": "2 t p / T / F in a forward, twice that in a backward; never less than reading p / T once",
    "attention": "2 t length q / T / F, a position sees half of the others; 2.5 times that in a backward "
    "(Dao, FlashAttention-2, 2023: five products for two)",
    "elementwise": "norms, sums, rotary positions, gate: c t (10 w + 2 q + 2 k + 3 h) / T / M; twice "
    "that in a backward",
    "head": "2 t w V / T / F, and 3 c t V / T / M; twice that in a backward",
    "again": "what the backward computes again: nothing, elementwise, or a whole forward of the block",
    "tensor": "2 all-gathers and 2 reduce-scatters of c t w in a forward, and in a backward (Korthikanti et "
    "al., 2022); none is hidden",
    "waiting": "for collectives of shards and context beyond the computation of the same block: zero3 "
    "gathers a block twice and reduces its gradients once for each microbatch; a ring passes 2 c t k / T "
    "of keys and values context - 1 times, and of their float32 gradients context times; they share links",
    "bubble": "what the busiest rank of the pipeline waits in the simulated schedule, with its messages of "
    "c t w / T",
    "data": "gathering (zero2) before the first forward, and reducing gradients (zero2, ddp, replicas) after "
    "the last backward, beyond the computation of one microbatch; and the first block's",
    "optimizer": "(3 + 2 tensors) * bytes of the device's parameters / M; an all-reduce of the norm",
    "stragglers": "spread * expected maximum of as many normal numbers as devices * computing",
}


@dataclass(frozen=True)
class Parts:
    """The seconds of one microbatch in a block, or in the head, by part: a forward, B and W of a backward."""

    forward: Mapping[str, float]
    inputs: Mapping[str, float]
    weights: Mapping[str, float]

    @cached_property
    def costs(self) -> tuple[float, float, float]:
        """The seconds of F, B and W."""
        rows = (self.forward, self.inputs, self.weights)
        f, b, w = (sum(row.values()) for row in rows)
        return f, b, w

    @cached_property
    def sums(self) -> dict[str, float]:
        """The seconds of a forward and its backward by part."""
        names = {**self.forward, **self.inputs, **self.weights}
        return {
            name: sum(row.get(name, 0.0) for row in (self.forward, self.inputs, self.weights))
            for name in names
        }


class StepCosts:
    """The time of steps of a decoder on a machine, by layout."""

    def __init__(self, decoder: Decoder, training: Training, machine: Machine) -> None:
        self.decoder, self.training, self.machine = decoder, training, machine
        self.network = machine.links
        self.item = ITEMSIZE[training.dtype]
        self._blocks: dict[object, Parts] = {}
        self._heads: dict[object, Parts] = {}
        self._computed: dict[object, tuple[float, float, float]] = {}
        self._simulations: dict[object, float] = {}
        self._schedules: dict[object, Schedule] = {}
        self._spans: dict[object, Span] = {}
        self._collectives: dict[object, Cost] = {}
        self._rates = {
            name: self._rate(name) for name in (training.dtype, training.products or training.dtype)
        }

    def _rate(self, dtype: str) -> float:
        if dtype not in self.machine.flops:
            raise InvalidArgument(
                f"the machine has no figure for products of {dtype}",
                found={"known": ", ".join(self.machine.flops)},
                hint="Add it to the table `flops` of a thunder.distributed.Machine.",
            )
        return self.machine.efficiency * self.machine.flops[dtype]

    def collective(self, kind: str, nbytes: float, layout: MeshLayout, *dimensions: str) -> Cost:
        """Return the cost of a collective of the groups in some dimensions of a layout's mesh."""
        group = layout.group(*dimensions)
        key = (kind, nbytes, group)
        if key not in self._collectives:
            if group not in self._spans:
                self._spans[group] = self.network.span(strided(group))
            self._collectives[key] = collective_cost(kind, nbytes, self._spans[group], self.network)
        return self._collectives[key]

    # -- one microbatch

    def tokens(self, layout: MeshLayout) -> int:
        """Return the tokens of a microbatch on a device."""
        return layout.microbatch * self.training.length // layout.context

    def _products(self, elements: float, tokens: int) -> float:
        rate = self._rates[self.training.products or self.training.dtype]
        return max(2 * tokens * elements / rate, self.item * elements / self.machine.bandwidth)

    def block(self, layout: MeshLayout) -> Parts:
        """Return the seconds of a block."""
        key = (layout.tensor, layout.context, layout.microbatch, layout.checkpointing, layout.sharding)
        key += (layout.shards, layout.pipeline, layout.schedule == "zero bubble")  # type: ignore[assignment]
        if key not in self._blocks:
            self._blocks[key] = self._block(layout)
        return self._blocks[key]

    def _block(self, layout: MeshLayout) -> Parts:
        d, tokens, tensor = self.decoder, self.tokens(layout), layout.tensor
        products = self._products(d.products / tensor, tokens)
        attention = 2 * tokens * self.training.length * d.queries / tensor / self._rates[self.training.dtype]
        touched = 10 * d.width + 2 * d.queries + 2 * d.keys + (1 + 2 * d.gated) * d.hidden
        elementwise = self.item * tokens * touched / tensor / self.machine.bandwidth
        computing = {"products": products, "attention": attention, "elementwise": elementwise}
        between = self.item * tokens * d.width
        one_way = sum(
            2 * self.collective(kind, between, layout, "tensor").seconds
            for kind in ("all_gather", "reduce_scatter")
        )
        again = {"none": 0.0, "products": elementwise, "blocks": sum(computing.values()) + one_way}
        inputs = {
            "products": products,
            "attention": 2.5 * attention,
            "elementwise": 2 * elementwise,
            "again": again[layout.checkpointing],
            "tensor": one_way,
        }
        forward = {**computing, "tensor": one_way}
        waits = self._waiting(
            layout, sum(computing.values()), sum(inputs.values()) - one_way, products, attention
        )
        return Parts(
            {**forward, "waiting": waits[0]},
            {**inputs, "waiting": waits[1]},
            {"products": products, "waiting": waits[2]},
        )

    def _waiting(
        self, layout: MeshLayout, forward: float, inputs: float, weights: float, attention: float
    ) -> tuple[float, float, float]:
        """Return the seconds in which F, B and W wait for collectives that run beside their computation.

        Where B and W are apart, gradients are reduced beside W, else beside both.
        """
        ring, ring_back = (self._ring(layout, backward=backward) for backward in (False, True))
        gathered = reduced = Cost(0.0)
        if layout.sharding == "zero3":
            block = block_parameters(self.decoder, layout.tensor)
            gathered, reduced = self._gathered(layout, block), self._reduced(layout, block)
        in_forward = max(0.0, ring.seconds - attention, contended((ring, gathered)) - forward)
        in_ring = max(0.0, ring_back.seconds - 2.5 * attention)
        if layout.schedule == "zero bubble":
            in_inputs = max(in_ring, contended((ring_back, gathered)) - inputs)
            return in_forward, in_inputs, max(0.0, reduced.seconds - weights)
        both = contended((ring_back, gathered, reduced)) - inputs - weights
        return in_forward, max(in_ring, both), 0.0

    def _ring(self, layout: MeshLayout, *, backward: bool) -> Cost:
        """Return the cost of passing keys and values around, and of their gradients."""
        if layout.context == 1:
            return Cost(0.0)
        elements = 2 * self.tokens(layout) * self.decoder.keys / layout.tensor
        values = self.collective("rotate", self.item * elements, layout, "context")
        if not backward:
            return values.times(layout.context - 1)
        gradients = self.collective("rotate", 4 * elements, layout, "context")
        return joined(values.times(layout.context - 1), gradients.times(layout.context))

    def _gathered(self, layout: MeshLayout, elements: float) -> Cost:
        return self.collective("all_gather", self.item * elements, layout, "shards", "context")

    def _reduced(self, layout: MeshLayout, elements: float) -> Cost:
        nbytes = ITEMSIZE[self.training.gradients] * elements
        return self.collective("reduce_scatter", nbytes, layout, "shards", "context")

    def head(self, layout: MeshLayout) -> Parts:
        """Return the seconds of the head and the loss."""
        key = (layout.tensor, layout.context, layout.microbatch)
        if key not in self._heads:
            tokens, elements = self.tokens(layout), self.decoder.embedding / layout.tensor
            logits = 3 * self.item * tokens * self.decoder.vocabulary / layout.tensor / self.machine.bandwidth
            products = self._products(elements, tokens)
            self._heads[key] = Parts(
                {"head": products + logits}, {"head": products + 2 * logits}, {"head": products}
            )
        return self._heads[key]

    # -- a step

    def stage_costs(self, layout: MeshLayout) -> list[tuple[float, float, float]]:
        """Return the seconds of F, B and W of each stage."""
        stages = layout.pipeline * layout.stages
        block, head = self.block(layout).costs, self.head(layout).costs
        rows = []
        for stage, blocks in enumerate(blocks_of_stages(self.decoder.layers, stages)):
            last = 1 if stage == stages - 1 else 0
            f, b, w = (
                blocks * of_block + last * of_head for of_block, of_head in zip(block, head, strict=True)
            )
            rows.append((f, b, w))
        return rows

    def least(self, layout: MeshLayout, *, of_computing: bool = False) -> float:
        """Return seconds that a step is not below: a rank's work, and the way to it and back.

        It takes no simulation; of computing alone also no costs of collectives.
        """
        if of_computing:
            block = self._computing(layout)
            head = self.head(layout).costs
        else:
            block, head = self.block(layout).costs, self.head(layout).costs
        ranks, stages = layout.pipeline, layout.pipeline * layout.stages
        count, most = layout.microbatches(self.training.batch), 0.0
        of_block, of_head = sum(block), sum(head)
        blocks = blocks_of_stages(self.decoder.layers, stages)
        # the ends have the fewest blocks: a rank between them has the most work but for the head
        for rank in dict.fromkeys((0, 1, ranks - 1)):
            if rank >= ranks:
                continue
            work = count * (sum(blocks[rank::ranks]) * of_block + (of_head if rank == ranks - 1 else 0.0))
            way = sum(blocks[:rank]) * (block[0] if layout.schedule == "zero bubble" else of_block)
            most = max(most, way + work)
        return most if of_computing else most + sum(self._ends(layout).values())

    def _computing(self, layout: MeshLayout) -> tuple[float, float, float]:
        """Return the seconds of F, B and W of a block without those for collectives."""
        key = (layout.tensor, layout.context, layout.microbatch, layout.checkpointing)
        if key not in self._computed:
            alone = MeshLayout(
                tensor=layout.tensor,
                context=layout.context,
                microbatch=layout.microbatch,
                checkpointing=layout.checkpointing,
            )
            parts = self.block(alone)
            f, b, w = (
                sum(value for name, value in row.items() if name not in ("tensor", "waiting"))
                for row in (parts.forward, parts.inputs, parts.weights)
            )
            if layout.checkpointing == "blocks":
                b -= parts.forward["tensor"]  # they are communicated again
            self._computed[key] = f, b, w
        return self._computed[key]

    def pipelined(self, layout: MeshLayout) -> float:
        """Return the seconds of the schedule of a pipeline.

        Of many microbatches, four for each rank are simulated; the others are taken to last as long as the
        last ones of these, which is within 2 % of simulating all.
        """
        ranks, count = layout.pipeline, layout.microbatches(self.training.batch)
        if ranks == 1:
            return count * sum(map(sum, self.stage_costs(layout)))
        enough = 4 * ranks
        if count <= enough + ranks:
            return self._simulated(layout, count)
        enough += count % ranks
        last = self._simulated(layout, enough)
        period = last - self._simulated(layout, enough - ranks)
        return last + (count - enough) // ranks * period

    def _simulated(self, layout: MeshLayout, count: int) -> float:
        """Return the seconds of the schedule of a pipeline with so many microbatches."""
        ranks, rows = layout.pipeline, self.stage_costs(layout)
        nbytes = self.item * self.tokens(layout) * self.decoder.width / layout.tensor
        message = self.collective("send", nbytes, layout, "pipeline").seconds
        key = (layout.schedule, ranks, count, message, tuple(rows))
        if key not in self._simulations:
            name = (layout.schedule, ranks, count, layout.stages)
            if name not in self._schedules:
                self._schedules[name] = schedule_named(
                    layout.schedule, ranks=ranks, microbatches=count, stages=ranks * layout.stages
                )
            costs = [dict(zip("FBW", row, strict=True)) for row in rows]
            self._simulations[key] = self._schedules[name].simulate(costs, message).total
        return self._simulations[key]

    def _ends(self, layout: MeshLayout) -> dict[str, float]:
        """Return the parts of a step that are before the first forward and after the last backward."""
        rows = parts_of_ranks(self.decoder, layout)
        found = [(self._data(layout, parts), self._optimizer(layout, parts)) for parts in rows]
        data, optimizer = (max(column) for column in zip(*found, strict=True))
        return {"data": data, "optimizer": optimizer}

    def _data(self, layout: MeshLayout, parts: RankParts) -> float:
        count = parts.parameters(self.decoder, layout.tensor)
        block = block_parameters(self.decoder, layout.tensor)
        # over replicas and, of ddp, parts of the sequence, each device reduces its part of the gradients
        dimensions = ("replicas", "context") if layout.sharding == "ddp" else ("replicas",)
        gradients = ITEMSIZE[self.training.gradients] * count / layout.sharers
        over_replicas = self.collective("all_reduce", gradients, layout, *dimensions)
        of_block = self.block(layout)
        forward, backward = of_block.costs[0], sum(of_block.costs[1:])
        before, after = [Cost(0.0)], [over_replicas]
        if layout.sharding == "zero2":
            before.append(self._gathered(layout, count))
            after.append(self._reduced(layout, count))
        part = block / count if count else 0.0
        seconds = 0.0
        for costs, window in ((before, parts.blocks * forward), (after, parts.blocks * backward)):
            total = contended(costs)
            seconds += max(part * total, total - window)
        if layout.sharding == "zero3":
            seconds += self._gathered(layout, block).seconds + self._reduced(layout, block).seconds
        return seconds

    def _optimizer(self, layout: MeshLayout, parts: RankParts) -> float:
        count = parts.parameters(self.decoder, layout.tensor) / layout.sharers
        touched = (3 + 2 * self.training.optimizer_tensors) * ITEMSIZE[self.training.parameters] * count
        everyone = ("replicas", "shards", "pipeline", "context", "tensor")
        norm = self.collective("all_reduce", 4, layout, *everyone).seconds
        return touched / self.machine.bandwidth + norm

    def parts(self, layout: MeshLayout) -> dict[str, float]:
        """Return the seconds of a step by part; they add up to the step."""
        count, ranks, rows = (
            layout.microbatches(self.training.batch),
            layout.pipeline,
            self.stage_costs(layout),
        )
        busy = [count * sum(map(sum, rows[rank::ranks])) for rank in range(ranks)]
        rank = max(range(ranks), key=busy.__getitem__)
        has = parts_of_ranks(self.decoder, layout)[rank]
        block, head = self.block(layout).sums, self.head(layout).sums
        found = {name: count * has.blocks * seconds for name, seconds in block.items()}
        found["head"] = count * head["head"] if has.has_head else 0.0
        found["bubble"] = self.pipelined(layout) - busy[rank]
        found |= self._ends(layout)
        computing = ("products", "attention", "elementwise", "head", "again", "optimizer")
        slowest = self.machine.spread * expected_maximum(layout.devices)
        found["stragglers"] = slowest * sum(found[name] for name in computing)
        return {name: found[name] for name in FORMULAS}
