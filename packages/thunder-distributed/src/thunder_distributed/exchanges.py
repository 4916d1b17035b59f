"""Collectives in which each process sends to some of the others.

y = rotate(x, '0', 1)        the tensor of the process before this one, in a ring
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.distributed as dist

from thunder import TensorProxy
from thunder.core.proxies import FutureTensorProxy
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags

from . import works
from .collectives import ex
from .expert_products import EXPERTS
from .lost_processes import reporting
from .process_groups import group_named, group_size

__all__ = ["EXCHANGES", "rotate"]


def _rotate_meta(a: Any, group: str, shift: int = 1, do_async: bool = False) -> Any:
    group_size(group)
    result = TensorProxy(like=a)
    return FutureTensorProxy(like=result) if do_async else result


def _rotate(a: torch.Tensor, group: str, shift: int = 1, do_async: bool = False) -> torch.Tensor:
    """Send a tensor to the process `shift` after this one; return that of the one `shift` before it."""
    size, rank = group_size(group), dist.get_rank(group_named(group))
    sent, received = [0] * size, [0] * size
    sent[(rank + shift) % size] = received[(rank - shift) % size] = a.numel()
    flat = works.all_to_all_single(a.contiguous().view(-1), received, sent, group)
    return (flat if do_async else works.wait_tensor(flat)).view(a.shape)


rotate: Symbol = ex.register_operator(
    "rotate",
    meta=_rotate_meta,
    fn=reporting("rotate", _rotate),
    tags=(OpTags.DONT_RECOMPUTE_IN_BACKWARD,),
    vjp={"a": lambda c: rotate(c.g, c.group, -c.shift)},
)

#: the operators that exchange, by id
EXCHANGES: Final = {rotate.id: rotate, **EXPERTS}
