"""Which parameters tensor parallelism divides along which dimension, and their rows in a layout table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final

import torch
from torch import nn

from thunder.core.errors import InvalidArgument

from .collectives import gathered
from .layouts import DistParallelType
from .process_groups import Members
from .sharding.shard import Shard

__all__ = ["TensorLayout", "chosen_parameters"]

#: a linear layer of transformers with a transposed weight, as those of GPT-2, if it is imported
TRANSPOSED: Final = ("transformers.pytorch_utils", "Conv1D")
#: kind of layout → class of layer → its parameters in parts, with the dimension that is divided
DIMENSIONS: Final[dict[DistParallelType, dict[type[nn.Module], dict[str, int]]]] = {
    DistParallelType.COLUMN_WISE: {nn.Linear: {"weight": 0, "bias": 0}, nn.Embedding: {"weight": 1}},
    DistParallelType.ROW_WISE: {nn.Linear: {"weight": 1}, nn.Embedding: {"weight": 0}},
}


@dataclass(frozen=True, kw_only=True)
class TensorLayout:
    """A layout says how one parameter is divided: process r of n has part r of a dimension.

    Parts have ceil(extent / n) elements of the dimension, with zeros where there are no elements.
    """

    name: str
    kind: DistParallelType
    members: Members
    #: the shape of the whole parameter
    shape: tuple[int, ...]
    #: the dimension that is divided
    dim: int
    #: the dimension in which sums over the processes are divided; None for whole sums
    results: int | None = None

    @property
    def division(self) -> Shard:
        """The layout as a value of a program."""
        return Shard(self.members.group, self.dim, self.shape[self.dim], self.results)

    @property
    def shard_shape(self) -> tuple[int, ...]:
        """The shape of the part of each process."""
        return self.division.local(self.shape)

    @property
    def range_here(self) -> range:
        """The positions in the divided dimension that this process has."""
        each, extent = self.division.each, self.shape[self.dim]
        start = min(self.members.rank * each, extent)
        return range(start, min(start + each, extent))

    def shard(self, whole: torch.Tensor) -> torch.Tensor:
        """Return the part of this process, in new memory, with zeros where there are no elements."""
        part = whole.new_zeros(self.shard_shape)
        here = self.range_here
        part.narrow(self.dim, 0, len(here)).copy_(whole.detach().narrow(self.dim, here.start, len(here)))
        return part

    def valid(self, part: torch.Tensor) -> torch.Tensor:
        """Return the elements of the part of this process that are elements of the parameter."""
        return part.narrow(self.dim, 0, len(self.range_here))

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Return the parameter from the part of this process; each process has to call it."""
        parts = gathered(part.detach(), self.members.group, self.dim)
        return parts.narrow(self.dim, 0, self.shape[self.dim])


def chosen_parameters(
    model: nn.Module, targets: Sequence[str], kind: DistParallelType, made_by: str
) -> Iterator[tuple[str, int]]:
    """Yield the parameters that a transform divides, with the dimension, for the layers of some names.

    In a name `*` stands for any text. Raises InvalidArgument for a name that no layer has, and for a module
    of another class.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    layers = {name: module for name, module in modules.items() if _dimensions(module, kind)}
    for target in targets:
        is_pattern = "*" in target
        chosen = [name for name in layers if fnmatchcase(name, target)] if is_pattern else [target]
        if not chosen or (target not in layers and not is_pattern):
            found: dict[str, Any] = {"layers": ", ".join(layers) or "none"}
            if target in modules:
                found["module"] = f"{target}: {type(modules[target]).__name__}"
            raise InvalidArgument(
                f"{made_by} divides linear layers and embeddings, and {target!r} is none of the module",
                found=found,
                hint="Names are those of named_modules(); * stands for any text: 'blocks.*.up'.",
            )
        for name in chosen:
            layer = layers[name]
            for parameter, dim in _dimensions(layer, kind).items():
                dotted = f"{name}.{parameter}" if name else parameter
                if getattr(layer, parameter, None) is None:
                    continue
                if parameter not in layer._parameters:
                    raise InvalidArgument(
                        f"{made_by} divides parameters, and {dotted} is computed from others",
                        hint="Leave the layer out, or remove its parametrisation.",
                    )
                yield dotted, dim


def _dimensions(module: nn.Module, kind: DistParallelType) -> dict[str, int]:
    """Return the parameters of a module that are divided, with the dimension; none of another class."""
    transposed = getattr(sys.modules.get(TRANSPOSED[0]), TRANSPOSED[1], None)
    if transposed is not None and isinstance(module, transposed):
        return {"weight": 1, "bias": 0} if kind is DistParallelType.COLUMN_WISE else {"weight": 0}
    return next((dims for cls, dims in DIMENSIONS[kind].items() if isinstance(module, cls)), {})
