"""The agreement of all processes on the collectives of a program, before it first runs.

Processes whose programs communicate in another order wait for each other forever. So the sequences of
collectives are compared when a program is compiled, through the store of `torch.distributed`: each process
of a group writes its sequence, the first one compares them and writes the verdict. A sequence on which they
have agreed before is not compared again: a process may compile alone for other sizes of its batch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch.distributed import distributed_c10d

from thunder.core.errors import UserError
from thunder.core.trace import TraceCtx, TraceTag

from .communication import collectives_of
from .process_groups import group_named

__all__ = ["ProcessMissing", "ProgramsDiffer", "agreed"]


class ProgramsDiffer(UserError, RuntimeError):
    """Two processes have compiled programs with different collectives."""


class ProcessMissing(UserError, RuntimeError):
    """A process has not compiled the program that the others have compiled."""


class _Sequences:
    """The collectives of one compile, by group."""

    def __init__(self) -> None:
        self.by_group: dict[str, list[str]] = {}


class _History:
    """The sequences on which the processes of a group have agreed, and the number of comparisons."""

    def __init__(self) -> None:
        self.agreed: set[str] = set()
        self.count = 0


_histories: WeakKeyDictionary[dist.ProcessGroup, _History] = WeakKeyDictionary()


def agreed(trace: TraceCtx, context: Any) -> TraceCtx:
    """Note the collectives of a final trace; compare those of the program after its last one.

    Raises ProgramsDiffer with both sequences, and ProcessMissing with the rank of a process that compiles no
    program within the timeout of the process group.
    """
    sequences = context.state(_Sequences).by_group
    for collective in collectives_of(trace, "backward" if context.is_backward else "forward"):
        sequences.setdefault(collective.group, []).append(f"{collective.trace}: {collective.signature}")
    if TraceTag.AUGMENTED_FORWARD in trace.tags:
        return trace  # the backward follows
    groups = (transform.members.group for transform in context.transforms if hasattr(transform, "members"))
    for group in sorted({*sequences, *groups}):
        _agree(group, sequences.get(group, []))
    return trace


def _agree(name: str, sequence: Sequence[str]) -> None:
    group = group_named(name)
    if dist.get_backend(group) == "fake" or dist.get_world_size(group) == 1:
        return
    digest = hashlib.sha256("\n".join(sequence).encode()).hexdigest()
    history = _histories.setdefault(group, _History())
    if digest in history.agreed:
        return
    store = distributed_c10d._get_default_store()
    history.count += 1
    _compare(store, f"thunder.distributed/{name}/{history.count}", group, sequence)
    history.agreed.add(digest)


def _compare(store: Any, key: str, group: dist.ProcessGroup, sequence: Sequence[str]) -> None:
    """Write a sequence; the first process of the group compares, the others read its verdict."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    store.set(f"{key}/{rank}", json.dumps(sequence))
    if rank == 0:
        verdict = _verdict(store, key, group, size, sequence)
        store.set(f"{key}/verdict", json.dumps(verdict))
    elif _arrives(store, f"{key}/verdict", 2 * store.timeout):
        verdict = json.loads(store.get(f"{key}/verdict"))
    else:
        verdict = {"missing": 0}
    ranks = dist.get_process_group_ranks(group)
    if "missing" in verdict:
        raise ProcessMissing(
            f"rank {ranks[verdict['missing']]} has not compiled a program that this process has compiled",
            found={"timeout": str(store.timeout), "collectives": _shown(sequence)},
            hint="Each process has to call the module equally often, and with gradients or without. Look at "
            "the output of that rank: it may have raised an error or have ended.",
        )
    if "differs" in verdict:
        raise ProgramsDiffer(
            f"ranks {ranks[0]} and {ranks[verdict['differs']]} have compiled programs with other collectives",
            found={
                f"rank {ranks[0]}": _shown(verdict["first"]),
                f"rank {ranks[verdict['differs']]}": _shown(verdict["second"]),
            },
            hint="Each process has to compile the same program: the same parameters, in the same order, and "
            "branches that do not depend on the rank.",
        )


def _verdict(
    store: Any, key: str, group: dist.ProcessGroup, size: int, sequence: Sequence[str]
) -> dict[str, Any]:
    """Compare the sequences of all processes with that of the first one."""
    for other in range(1, size):
        if not _arrives(store, f"{key}/{other}", store.timeout):
            return {"missing": other}
        theirs = json.loads(store.get(f"{key}/{other}"))
        if theirs != list(sequence):
            return {"differs": other, "first": list(sequence), "second": theirs}
    return {}


def _arrives(store: Any, key: str, timeout: timedelta) -> bool:
    """Return whether a key is written within a timeout, by a store that can be reached."""
    try:
        store.wait([key], timeout)
    except RuntimeError:  # that of a timeout is of another class for each kind of store
        return False
    return True


def _shown(sequence: Iterable[str]) -> str:
    """Return a sequence as text, of which the middle is left out if it is long."""
    lines = list(sequence)
    if len(lines) > 40:
        lines = [*lines[:20], f"… {len(lines) - 40} more …", *lines[-20:]]
    return "; ".join(lines) or "none"
