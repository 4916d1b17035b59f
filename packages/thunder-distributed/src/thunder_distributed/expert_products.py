"""Products of rows with the weights of experts, which are divided between the processes of a group.

    y = expert_product(a, '0', b, offsets)       y[i] = a[i] @ weights[e] for the rows i of expert e

The rows of `a` (n, k) are sorted by expert, and those of expert e end before `offsets[e]`. Each process has
the weights `b` (experts / processes, k, m) of its own experts. Rows are sent to the process that has their
expert by an all-to-all with as many rows as there are, and their products are sent back (Lepikhin et al.,
GShard, arXiv:2006.16668, without its limit of rows for each expert). Rows after the last offset are zeros.

The gradients of weights are those of the mean of the losses of all processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core.errors import InvalidArgument
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags

from . import works
from .collectives import ex
from .lost_processes import reporting
from .process_groups import group_size

__all__ = ["EXPERTS", "expert_gradient", "expert_product", "experts_of"]


@dataclass(frozen=True)
class _Routes:
    """Numbers of rows that this process exchanges with each of the others, and the experts they are for."""

    group: str
    sent: list[int]
    received: list[int]
    #: the received rows in the order of experts
    order: torch.Tensor
    #: the number of rows of each expert of this process
    sizes: list[int]

    @classmethod
    def of(cls, offsets: torch.Tensor, group: str) -> _Routes:
        """Return the routes; the processes exchange how many rows they have for each expert."""
        size = group_size(group)
        ends = offsets.to(torch.int64)
        counts = torch.diff(ends, prepend=ends.new_zeros(1))
        equal = [counts.numel() // size] * size
        theirs = works.wait_tensor(works.all_to_all_single(counts, equal, equal, group))
        theirs = theirs.view(size, -1)
        experts = torch.arange(theirs.shape[1], device=theirs.device).repeat(size)
        order = torch.argsort(experts.repeat_interleave(theirs.flatten()), stable=True)
        sent = counts.view(size, -1).sum(1).tolist()
        return cls(group, sent, theirs.sum(1).tolist(), order, theirs.sum(0).tolist())

    def rows(self, a: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the rows of each expert of this process, from all processes."""
        mine = a[: sum(self.sent)].contiguous()
        received = works.all_to_all_single(mine, self.received, self.sent, self.group)
        return works.wait_tensor(received)[self.order].split(self.sizes)  # type: ignore[no-any-return]

    def back(self, products: torch.Tensor, count: int) -> torch.Tensor:
        """Return the products of this process's own rows, and zeros up to a number of rows."""
        received = torch.empty_like(products)
        received[self.order] = products
        exchanged = works.all_to_all_single(received, self.sent, self.received, self.group)
        own = works.wait_tensor(exchanged)
        return torch.cat([own, own.new_zeros(count - len(own), own.shape[1])])


def _product_meta(a: Any, group: str, b: Any, offsets: Any) -> Any:
    if len(a.shape) != 2 or len(b.shape) != 3 or b.shape[0] * group_size(group) != offsets.shape[0]:
        raise InvalidArgument(
            "expert_product takes rows, the weights of this process's experts, and the ends of all experts",
            found={"rows": tuple(a.shape), "weights": tuple(b.shape), "offsets": tuple(offsets.shape)},
        )
    return TensorProxy(like=a, shape=(a.shape[0], b.shape[2]))


def _product(a: torch.Tensor, group: str, b: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    routes = _Routes.of(offsets, group)
    products = [rows @ weight for rows, weight in zip(routes.rows(a), b, strict=True)]
    return routes.back(torch.cat(products), len(a))


def _gradient_meta(a: Any, group: str, g: Any, offsets: Any) -> Any:
    experts = offsets.shape[0] // group_size(group)
    return TensorProxy(like=a, shape=(experts, a.shape[1], g.shape[1]))


def _gradient(a: torch.Tensor, group: str, g: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    routes = _Routes.of(offsets, group)
    pairs = zip(routes.rows(a), routes.rows(g.contiguous()), strict=True)
    return torch.stack([rows.mT @ cotangents for rows, cotangents in pairs])


def _whole_meta(part: Any, group: str) -> Any:
    return TensorProxy(like=part, shape=(part.shape[0] * group_size(group), *part.shape[1:]))


_TAGS: Final = (OpTags.DONT_RECOMPUTE_IN_BACKWARD,)
#: the weights of all experts, of which each process has its part; no program runs it
experts_of: Symbol = ex.register_operator("experts_of", meta=_whole_meta)
expert_gradient: Symbol = ex.register_operator(
    "expert_gradient",
    meta=_gradient_meta,
    fn=reporting("expert_gradient", _gradient),
    tags=(*_TAGS, OpTags.NONDIFFERENTIABLE),
)
_GRADIENTS: dict[str, Any] = {
    "a": lambda c: expert_product(c.g, c.group, ltorch.transpose(c.b, -2, -1), c.offsets),
    "b": lambda c: expert_gradient(c.a, c.group, c.g, c.offsets) / group_size(c.group),
    "offsets": None,
}
expert_product: Symbol = ex.register_operator(
    "expert_product",
    meta=_product_meta,
    fn=reporting("expert_product", _product),
    tags=_TAGS,
    vjp=_GRADIENTS,
)

#: the operators of this module that communicate, by id
EXPERTS: Final = {symbol.id: symbol for symbol in (expert_product, expert_gradient)}
