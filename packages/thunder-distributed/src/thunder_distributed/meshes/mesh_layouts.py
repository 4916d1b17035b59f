"""Layouts of a training on a mesh, and all that a number of devices has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import lru_cache
from typing import Any, Final

from thunder.core.errors import InvalidArgument

from ..networks import strided
from .decoders import Decoder

__all__ = ["MeshLayout", "Training", "layouts_of"]

#: bytes of an element
ITEMSIZE: Final = {"f32": 4, "bf16": 2, "f16": 2, "f8": 1, "f64": 8}
#: what of a block is computed again in the backward: nothing, all but products and attention, all
CHECKPOINTING: Final = ("none", "products", "blocks")
#: whether the parameters are in parts: not at all, between steps, between uses
SHARDING: Final = ("ddp", "zero2", "zero3")
#: the most sequences of a microbatch, stages of a rank, and ranks of a pipeline, that a search tries
MOST_SEQUENCES: Final = 8
MOST_STAGES: Final = 8
MOST_RANKS: Final = 32


@dataclass(frozen=True, kw_only=True)
class Training:
    """What a step computes, and in which dtypes.

    Attributes:
        batch: sequences of a step, of all devices.
        length: tokens of a sequence.
        dtype: of activations, of attention, and of parameters in products.
        products: of the arithmetic of linear layers, as "f8"; None for `dtype`.
        parameters: of the parameters that an optimizer writes, and of its tensors.
        gradients: in which gradients are added up and communicated.
        optimizer_tensors: what an optimizer keeps for each parameter, in tensors of its size.
    """

    batch: int
    length: int
    dtype: str = "bf16"
    products: str | None = None
    parameters: str = "f32"
    gradients: str = "f32"
    optimizer_tensors: int = 2

    @property
    def tokens(self) -> int:
        """The tokens of a step."""
        return self.batch * self.length


@dataclass(frozen=True, kw_only=True)
class MeshLayout:
    """The dimensions of a mesh, the outermost first, and how a step is divided.

    Neighbours are in one group of `tensor`, then of `context`, `pipeline`, `shards` and `replicas`, the order
    of Llama 3 (Grattafiori et al., 2024, section 3.3.2).

    Attributes:
        replicas: groups of devices with parameters of their own.
        shards: devices that share parameters and have their own data; those of `context` share them, too.
        pipeline: ranks of a pipeline.
        context: parts of a sequence.
        tensor: parts of a layer; also of a sequence between layers.
        microbatch: sequences that a device computes at once.
        stages: of a rank of the pipeline.
        schedule: "1f1b", "interleaved" or "zero bubble".
        sharding: "ddp", "zero2" or "zero3".
        checkpointing: what is computed again in the backward: "none"; all but "products" and attention; whole
            "blocks".
    """

    replicas: int = 1
    shards: int = 1
    pipeline: int = 1
    context: int = 1
    tensor: int = 1
    microbatch: int = 1
    stages: int = 1
    schedule: str = "1f1b"
    sharding: str = "ddp"
    checkpointing: str = "none"

    @property
    def devices(self) -> int:
        """The number of devices."""
        return self.data * self.pipeline * self.context * self.tensor

    @property
    def data(self) -> int:
        """The number of devices that have their own sequences."""
        return self.replicas * self.shards

    @property
    def sharers(self) -> int:
        """The number of devices between which parameters or the optimizer's tensors are divided."""
        return 1 if self.sharding == "ddp" else self.shards * self.context

    @property
    def mesh(self) -> dict[str, int]:
        """The dimensions with more than one device, the outermost first."""
        return {name: size for name in _DIMENSIONS if (size := getattr(self, name)) > 1}

    def microbatches(self, batch: int) -> int:
        """Return the number of microbatches of a batch of so many sequences."""
        return batch // (self.data * self.microbatch)

    def group(self, *dimensions: str) -> tuple[tuple[int, int], ...]:
        """Return how the groups of some dimensions lie in the mesh: sizes and strides, the innermost first.

        Dimensions that follow each other are one.
        """
        sizes = (self.replicas, self.shards, self.pipeline, self.context, self.tensor)
        stride, found = 1, list[tuple[int, int]]()
        for name, size in zip(reversed(_DIMENSIONS), reversed(sizes), strict=True):
            if name in dimensions and size > 1:
                if found and found[-1][0] * found[-1][1] == stride:
                    found[-1] = found[-1][0] * size, found[-1][1]
                else:
                    found.append((size, stride))
            stride *= size
        return tuple(found)

    def ranks(self, *dimensions: str) -> tuple[int, ...]:
        """Return the global ranks of the group of rank 0 in some dimensions of the mesh."""
        return strided(self.group(*dimensions))

    def __str__(self) -> str:
        mesh = " x ".join(f"{name} {size}" for name, size in self.mesh.items()) or "one device"
        text = f"{mesh}, {self.sharding}" if self.data * self.context > 1 else mesh
        if self.pipeline > 1:
            text += f", {self.schedule}" + (f" of {self.stages} stages" if self.stages > 1 else "")
        text += f", microbatch {self.microbatch}"
        kept = {"none": "", "products": ", products kept", "blocks": ", blocks computed again"}
        return text + kept[self.checkpointing]


_DIMENSIONS: Final = ("replicas", "shards", "pipeline", "context", "tensor")


def layouts_of(
    decoder: Decoder, training: Training, devices: int, fixed: Mapping[str, Any] | None = None
) -> Iterator[MeshLayout]:
    """Yield the layouts of so many devices that divide a decoder and its batch without a rest.

    Args:
        fixed: fields of the layouts and their values.

    Raises InvalidArgument for a name in `fixed` that is not a field.
    """
    fixed = dict(fixed or {})
    unknown = sorted(set(fixed) - {field.name for field in fields(MeshLayout)})
    if unknown:
        raise InvalidArgument(
            f"a layout has no field {unknown[0]!r}",
            found={"fields": ", ".join(field.name for field in fields(MeshLayout))},
        )

    def chosen(name: str, values: Any) -> Any:
        return [v for v in values if v == fixed[name]] if name in fixed else values

    for tensor in chosen("tensor", divisors(devices)):
        if any(n % tensor for n in (decoder.heads, decoder.groups, decoder.hidden, decoder.vocabulary)):
            continue
        for context in chosen("context", divisors(devices // tensor)):
            if context > 1 and training.length % (2 * context):
                continue
            if training.length % (context * tensor):
                continue
            for pipeline in chosen("pipeline", divisors(devices // tensor // context)):
                data = devices // tensor // context // pipeline
                if pipeline > max(MOST_RANKS, fixed.get("pipeline", 0)) or training.batch % data:
                    continue
                if pipeline > decoder.layers + 2:
                    continue
                sizes = {"tensor": tensor, "context": context, "pipeline": pipeline}
                of_rank = training.batch // data
                for shards in chosen("shards", divisors(data)):
                    for sharding in chosen("sharding", SHARDING):
                        if (shards > 1) if sharding == "ddp" else (shards * context == 1):
                            continue
                        sizes |= {"shards": shards, "replicas": data // shards, "sharding": sharding}
                        if chosen("replicas", [data // shards]):
                            most = max(MOST_SEQUENCES, fixed.get("microbatch", 0))
                            yield from _steps(decoder, sizes, of_rank, most, chosen)


def _steps(
    decoder: Decoder, sizes: dict[str, Any], of_rank: int, most: int, chosen: Any
) -> Iterator[MeshLayout]:
    ranks = sizes["pipeline"]
    for microbatch in chosen("microbatch", [n for n in divisors(of_rank) if n <= most]):
        for schedule, stages in _schedules(ranks, of_rank // microbatch, decoder.layers):
            if chosen("schedule", [schedule]) and chosen("stages", [stages]):
                for checkpointing in chosen("checkpointing", CHECKPOINTING):
                    yield MeshLayout(
                        **sizes,
                        microbatch=microbatch,
                        schedule=schedule,
                        stages=stages,
                        checkpointing=checkpointing,
                    )


def _schedules(ranks: int, microbatches: int, layers: int) -> Iterator[tuple[str, int]]:
    yield "1f1b", 1
    if ranks == 1:
        return
    yield "zero bubble", 1
    if microbatches % ranks == 0:
        most = min(MOST_STAGES, (layers + 2) // ranks)
        yield from (("interleaved", stages) for stages in range(2, most + 1))


@lru_cache(maxsize=1024)
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of a number, the smallest first."""
    return tuple(n for n in range(1, number + 1) if number % n == 0)
