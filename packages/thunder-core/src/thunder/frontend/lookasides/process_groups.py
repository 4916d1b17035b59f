"""What a program asks of the process groups of ``torch.distributed``: facts, by the names of groups.

A group itself is read by its name alone: an entry that held the object would keep its connections open.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch.distributed as dist

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import READS_SURROUNDINGS
from thunder.frontend.session import TracingSession

TABLE = LookasideTable(READS_SURROUNDINGS)


def _resolved(value: Any) -> Any:
    named: Any = dist.distributed_c10d
    return named._resolve_process_group(value.name) if type(value) is _Named else value


class _Named:
    """The name of a group among the arguments of a query."""

    def __init__(self, name: str) -> None:
        self.name = name


def _asked(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a query as a constant: that of a list is a tuple."""
    try:
        value = fn(*map(_resolved, args), **{name: _resolved(v) for name, v in kwargs.items()})
    except (RuntimeError, ValueError, LookupError):  # there is no such group any more
        return None
    return tuple(value) if isinstance(value, list) else value


def _query(fn: Callable[..., Any]) -> None:
    @TABLE.lookaside(fn)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        value = fn(*args, **kwargs)
        named = [_Named(a.group_name) if isinstance(a, dist.ProcessGroup) else a for a in args]
        keywords = {
            name: _Named(a.group_name) if isinstance(a, dist.ProcessGroup) else a
            for name, a in kwargs.items()
        }
        asked = partial(_asked, fn, tuple(named), keywords)
        session.note_state(asked, f"torch.distributed.{fn.__name__}()", asked())
        return value


if dist.is_available():
    for _fn in (
        dist.get_rank,
        dist.get_world_size,
        dist.get_backend,
        dist.get_process_group_ranks,
        dist.get_group_rank,
        dist.get_global_rank,
        dist.is_initialized,
        dist.distributed_c10d._get_process_group_name,
    ):
        _query(_fn)
