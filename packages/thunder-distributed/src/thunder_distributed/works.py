"""Collectives that are waited for a while, and then looked at, as gloo's can be.

torch's functional collectives are waited for until they arrive or their timeout is over: by default half an
hour. A collective of gloo that was issued as a `Work` can be waited for a second at a time. In between
it is looked at whether it can still arrive: another process may have begun another program, or be stopped
(`watching`). Those of other backends, of pretended processes, and under a TorchDispatchMode, are torch's
functional ones.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import torch
import torch.distributed as dist

from .presence import abandon
from .running import Running, running_in
from .watching import Watch

__all__ = [
    "all_gather_into_tensor",
    "all_reduce",
    "all_to_all_single",
    "broadcast",
    "finish",
    "reduce_scatter_tensor",
    "wait_tensor",
]

#: how long a collective is waited for before the others are looked at, in seconds
INTERVAL: Final = timedelta(seconds=1)
_functional = torch.ops._c10d_functional
_OPERATIONS: Final[dict[str, Any]] = {
    "sum": dist.ReduceOp.SUM,
    "avg": dist.ReduceOp.AVG,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
}
#: memory of the result of a collective in flight → the result, its work, and the record of its group
_issued: dict[int, tuple[torch.Tensor, Any, Running]] = {}


def all_gather_into_tensor(a: torch.Tensor, size: int, group: str) -> torch.Tensor:
    """Issue an all-gather along the first dimension; return its result, which `wait_tensor` waits for."""
    running = running_in(group)
    if not _is_left_early(a, running):
        return _functional.all_gather_into_tensor(a, size, group)  # type: ignore[no-any-return]
    result = a.new_empty((a.shape[0] * size, *a.shape[1:]))
    return _in_flight(result, running.group._allgather_base(result, a), running)


def all_reduce(a: torch.Tensor, op: str, group: str) -> torch.Tensor:
    """Issue a reduction; return its result, which `wait_tensor` waits for."""
    running = running_in(group)
    if not _is_left_early(a, running):
        return _functional.all_reduce(a, op, group)  # type: ignore[no-any-return]
    result = a.clone()
    options = dist.AllreduceOptions()
    options.reduceOp = _OPERATIONS[op]
    return _in_flight(result, running.group.allreduce([result], options), running)


def broadcast(a: torch.Tensor, src: int, group: str) -> torch.Tensor:
    """Issue a broadcast from a rank of the group; return its result, which `wait_tensor` waits for."""
    running = running_in(group)
    if not _is_left_early(a, running):
        return _functional.broadcast(a, src, group)  # type: ignore[no-any-return]
    result = a.clone()
    options = dist.BroadcastOptions()
    options.rootRank = src
    return _in_flight(result, running.group.broadcast([result], options), running)


def reduce_scatter_tensor(a: torch.Tensor, op: str, size: int, group: str) -> torch.Tensor:
    """Issue a reduce-scatter along the first dimension; return its result, which `wait_tensor` waits for."""
    running = running_in(group)
    if not _is_left_early(a, running):
        return _functional.reduce_scatter_tensor(a, op, size, group)  # type: ignore[no-any-return]
    result = a.new_empty((a.shape[0] // size, *a.shape[1:]))
    options = dist.ReduceScatterOptions()
    options.reduceOp = _OPERATIONS[op]
    return _in_flight(result, running.group._reduce_scatter_base(result, a, options), running)


def all_to_all_single(
    a: torch.Tensor, received: Sequence[int], sent: Sequence[int], group: str
) -> torch.Tensor:
    """Issue an all-to-all of rows; return its result, which `wait_tensor` waits for."""
    running = running_in(group)
    if not _is_left_early(a, running):
        return _functional.all_to_all_single(a, received, sent, group)  # type: ignore[no-any-return]
    result = a.new_empty((sum(received), *a.shape[1:]))
    work = running.group.alltoall_base(result, a, list(received), list(sent), dist.AllToAllOptions())
    return _in_flight(result, work, running)


def wait_tensor(result: torch.Tensor) -> torch.Tensor:
    """Wait for a collective by its result, and return that.

    Raises Alarm if it cannot arrive, and torch's error if it fails.
    """
    issued = _issued.pop(_memory(result), None)
    if issued is None:
        return _functional.wait_tensor(result)  # type: ignore[no-any-return]
    _, work, running = issued
    finish(work, running, running.position)
    return result


def _is_left_early(a: torch.Tensor, running: Running) -> bool:
    """Return whether a collective may be left. Under a dispatch mode it is torch's, which the mode sees."""
    return running.is_watched(a.device) and not torch._C._len_torch_dispatch_stack()


def _memory(result: torch.Tensor) -> int:
    """Return what a result and its views have in common, of which one may be waited for."""
    return int(result.untyped_storage()._cdata)


def finish(work: Any, running: Running, position: str) -> None:
    """Wait for a work of a group, which is at a position; raise Alarm if it cannot arrive."""
    if not running.can_be_seen:
        work.wait()
        return
    watch = None
    while True:
        began = time.monotonic()
        try:
            work.wait(INTERVAL)
            return
        except RuntimeError:
            if work.is_completed():
                work.wait()  # raises the error of the work, if it has one
                return
            if time.monotonic() < began + INTERVAL.total_seconds() / 2:
                raise  # a work of several parts has failed, which is not complete then
        watch = watch or Watch(running, position)
        try:
            watch.look()
        except RuntimeError:
            abandon()
            raise


def _in_flight(result: torch.Tensor, work: Any, running: Running) -> torch.Tensor:
    _issued[_memory(result)] = result, work, running
    return result
