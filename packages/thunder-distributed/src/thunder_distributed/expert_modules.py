"""Experts that are modules of a `ModuleList`: each is in one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import nn

from thunder.core.errors import InvalidArgument

from .layouts import DistParallelType
from .lost_processes import naming_missing
from .process_groups import Members, group_named

__all__ = ["OwnedLayout", "check_lists", "lists_of_experts", "place_of"]


@dataclass(frozen=True, kw_only=True)
class OwnedLayout:
    """A row of the table of layouts: one process of a group has the parameter, the others nothing of it."""

    name: str
    members: Members
    #: the shape of the parameter
    shape: tuple[int, ...]
    #: the rank in the group of the process that has it
    owner: int
    #: its name if the experts of each process were counted from 0, which all processes have in common
    common_name: str
    #: one part is all of it, and the others are empty
    kind: ClassVar[DistParallelType] = DistParallelType.FULLY_SHARDED

    @property
    def is_here(self) -> bool:
        """Whether this process has the parameter."""
        return self.members.rank == self.owner

    def shard(self, whole: torch.Tensor) -> torch.Tensor:
        """Return what this process has of the parameter, in new memory: all of it, or no element."""
        return whole.detach().clone() if self.is_here else whole.new_empty(0)

    def gather(self, part: torch.Tensor) -> torch.Tensor:
        """Return the parameter from what this process has of it; each process has to call it."""
        whole = part.detach().clone() if self.is_here else part.new_empty(self.shape)
        with naming_missing("the gathering of a parameter", self.members.group):
            dist.broadcast(whole, src=self.members.ranks[self.owner], group=group_named(self.members.group))
        return whole


def lists_of_experts(module: nn.Module, is_of_experts: Callable[[str], bool]) -> dict[str, nn.ModuleList]:
    """Return the lists of modules all of whose parameters are those of experts, by path.

    `is_of_experts` says it of the name of a parameter.
    """
    found: dict[str, nn.ModuleList] = {}
    for path, each in module.named_modules():
        if not isinstance(each, nn.ModuleList) or any(path.startswith(f"{outer}.") for outer in found):
            continue
        names = [f"{path}.{name}" for name, _ in each.named_parameters()]
        if names and all(map(is_of_experts, names)):
            found[path] = each
    return found


def place_of(name: str, lists: Mapping[str, nn.ModuleList]) -> tuple[str, int] | None:
    """Return the list that a parameter is in, and the index of its expert; None for another one."""
    for path in lists:
        if name.startswith(f"{path}."):
            return path, int(name.removeprefix(f"{path}.").partition(".")[0])
    return None


def check_lists(lists: Mapping[str, nn.ModuleList], processes: int) -> None:
    """Raise InvalidArgument for lists of experts that differ, or are not divided equally."""
    for path, experts in lists.items():
        if len(experts) % processes:
            raise InvalidArgument(
                f"{len(experts)} experts of {path} are not divided among {processes} processes",
                hint="The number of experts is a multiple of the number of processes.",
            )
        for index, other in enumerate(experts):
            difference = _difference(experts[0], other)
            if difference is not None:
                raise InvalidArgument(
                    f"{path}.0 and {path}.{index} differ in {difference}",
                    hint="Experts compute the same with other weights. Leave these out of experts=.",
                )


def _difference(a: nn.Module, b: nn.Module) -> str | None:
    """Return in what two modules differ, apart from the values of parameters; None if in nothing."""
    if type(a) is not type(b):
        return "their class"
    ours, theirs = vars(a), vars(b)
    for name in ours.keys() | theirs.keys():
        one, other = ours.get(name), theirs.get(name)
        if name == "_parameters":
            if {n: _form(p) for n, p in a._parameters.items()} != {
                n: _form(p) for n, p in b._parameters.items()
            }:
                return "their parameters"
        elif name == "_buffers":
            if any(t is not None for t in (*a._buffers.values(), *b._buffers.values())):
                return "buffers, which each expert has"
        elif name == "_modules":
            if list(a._modules) != list(b._modules):
                return "their submodules"
            for key, child in a._modules.items():
                sibling = b._modules[key]
                difference = "a submodule" if (child is None) != (sibling is None) else None
                if child is not None and sibling is not None:
                    difference = _difference(child, sibling)
                if difference is not None:
                    return difference
        elif one is not other and (type(one) is not type(other) or not _is_equal(one, other)):
            return name
    return None


def _form(p: torch.Tensor | None) -> Any:
    return None if p is None else (tuple(p.shape), p.dtype, p.requires_grad)


def _is_equal(a: Any, b: Any) -> bool:
    """Return whether two attributes are known to be equal."""
    try:
        return bool(a == b)
    except Exception:
        return False
