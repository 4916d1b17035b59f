"""Messages between two processes as operators of traces: `send` and `receive`.

    f0 = send(t0, '3', 1, 7)                                 t0 goes to rank 1 of group '3', as number 7
    sent(f0)                                                 until its memory may be used again
    f1 = receive((4, 8), torch.float32, 'cpu', '3', 1, 8)    a tensor from rank 1, as number 8
    t1 = arrived(f1)                                         the tensor, when it is there

Both begin at once and are waited for later. Processes send and receive in the order of one schedule (Note
[Order of messages] in `schedule_checks`). The number is that of the message between the two, for backends
that tell messages apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import torch
import torch.distributed as dist

from thunder import TensorProxy
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import InvalidArgument
from thunder.core.proxies import FutureTensorProxy
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx

from ..collectives import ex
from ..communication import Collective
from ..disagreements import ProcessMissing
from ..process_groups import group_named, group_size

__all__ = ["MESSAGES", "arrived", "messages_of", "receive", "send", "sent"]


class _InFlight(NamedTuple):
    """A message on its way, with the memory that it reads or writes."""

    work: Any
    tensor: torch.Tensor
    group: str
    peer: int


def _send_meta(a: Any, group: str, rank: int, number: int) -> Any:
    _check_rank(group, rank)
    return FutureTensorProxy(like=a)


def _send(a: torch.Tensor, group: str, rank: int, number: int) -> _InFlight:
    tensor = a.contiguous()
    with _naming(group, rank, "send to"):
        work = dist.isend(tensor, group=group_named(group), group_dst=rank, tag=number)
    return _InFlight(work, tensor, group, rank)


def _receive_meta(
    shape: Sequence[int], dtype: torch.dtype, device: str, group: str, rank: int, number: int
) -> Any:
    _check_rank(group, rank)
    return FutureTensorProxy(like=TensorProxy(shape=tuple(shape), dtype=dtype, device=device))


def _receive(
    shape: Sequence[int], dtype: torch.dtype, device: str, group: str, rank: int, number: int
) -> _InFlight:
    tensor = torch.empty(tuple(shape), dtype=dtype, device=device)
    with _naming(group, rank, "receive from"):
        work = dist.irecv(tensor, group=group_named(group), group_src=rank, tag=number)
    return _InFlight(work, tensor, group, rank)


def _sent(future: _InFlight) -> None:
    with _naming(future.group, future.peer, "send to"):
        future.work.wait()


def _arrived_meta(future: Any) -> Any:
    return TensorProxy(shape=future.shape, device=future.device, dtype=future.dtype)


def _arrived(future: _InFlight) -> torch.Tensor:
    with _naming(future.group, future.peer, "receive from"):
        future.work.wait()
    return future.tensor


def _check_rank(group: str, rank: int) -> None:
    if not 0 <= rank < group_size(group):
        raise InvalidArgument(f"{rank} is not a rank of the group {group!r}")


@contextmanager
def _naming(group: str, rank: int, what: str) -> Iterator[None]:
    """Raise ProcessMissing with the global rank of the other process, if a message fails."""
    try:
        yield
    except RuntimeError as error:
        other = dist.get_global_rank(group_named(group), rank)
        raise ProcessMissing(
            f"a message of a pipeline failed: {what} rank {other}",
            found={"this process": f"rank {dist.get_rank()}"},
            hint="Look at the output of that rank: it may have raised an error or have ended.",
        ) from error


_TAGS: Final = (OpTags.DONT_DCE, OpTags.NONDIFFERENTIABLE, OpTags.DONT_RECOMPUTE_IN_BACKWARD)
send: Symbol = ex.register_operator("send", meta=_send_meta, fn=_send, tags=_TAGS)
receive: Symbol = ex.register_operator("receive", meta=_receive_meta, fn=_receive, tags=_TAGS)
sent: Symbol = ex.register_operator("sent", meta=lambda future: None, fn=_sent, tags=_TAGS)
arrived: Symbol = ex.register_operator("arrived", meta=_arrived_meta, fn=_arrived, tags=_TAGS)


def messages_of(trace: TraceCtx) -> Iterator[Collective]:
    """Yield the messages of a program of a rank; what it receives sends nothing."""
    for bsym in trace.bound_symbols:
        if bsym.sym.id not in MESSAGES:
            continue
        future, group = bsym.output, bsym.args[1 if bsym.sym.id == send.id else 3]
        nbytes = math.prod(future.shape) * to_torch_dtype(future.dtype).itemsize
        yield Collective(
            trace="step",
            name=bsym.sym.name,
            group=group,
            size=group_size(group),
            dtype=future.dtype.shortname(),
            shape=tuple(future.shape),
            nbytes=nbytes,
            source=f"{'to' if bsym.sym.id == send.id else 'from'} rank {bsym.args[-2]}",
        )


#: the operators that move a tensor between two processes, by id
MESSAGES: Final = {send.id: send, receive.id: receive}
