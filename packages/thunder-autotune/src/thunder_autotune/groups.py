"""Processes of a group that tune together and decide the same: a candidate has the time of the slowest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch

from thunder.core.errors import InvalidArgument, UserError
from thunder_autotune.entries import Entry, Figure

__all__ = ["Group", "refuse_process_groups", "slowest", "slowest_figures"]

T = TypeVar("T")


class Group:
    """The processes of the default group of torch, or this process alone.

    Attributes:
        size: how many processes there are.
        is_first: whether this is the one that writes files.
    """

    def __init__(self) -> None:
        distributed = torch.distributed
        is_group = distributed.is_available() and distributed.is_initialized()
        self.size = distributed.get_world_size() if is_group else 1
        self.is_first = not is_group or distributed.get_rank() == 0

    def all(self, work: Callable[[], T]) -> list[T]:
        """Return what the processes compute, in their order; all of them call this.

        Raises what `work` raises here, and UserError where it raises in another process.
        """
        if self.size == 1:
            return [work()]
        result, caught = None, None
        try:
            result = work()
        except Exception as error:  # it is raised when the others know
            caught = error
        found: list[Any] = [None] * self.size
        torch.distributed.all_gather_object(found, (result, None if caught is None else repr(caught)))
        if caught is not None:
            raise caught
        for number, (_, fault) in enumerate(found):
            if fault is not None:
                raise UserError(f"process {number} of the group could not be tuned", found={"error": fault})
        return [value for value, _ in found]

    def any(self, flag: bool) -> bool:
        """Return whether a flag is set in a process."""
        return any(self.all(lambda: flag))

    def equal(self, what: str, work: Callable[[], T]) -> T:
        """Return what `work` returns; raise UserError where it returns other values in other processes."""
        values = self.all(work)
        for number, value in enumerate(values):
            if value != values[0]:
                raise UserError(
                    f"processes of the group have different {what}, so they cannot be tuned together",
                    found={"process 0": values[0], f"process {number}": value},
                    hint="Tune in one process, and give its lock file to all: placement='thunder.lock.toml'.",
                )
        return values[0]


def refuse_process_groups() -> None:
    """Raise InvalidArgument in a process group of several processes, which compile at different times."""
    size = Group().size
    if size > 1:
        raise InvalidArgument(
            "placement='measured' was used in a process group, whose processes need not compile together",
            found={"processes": size},
            hint="Call thunder.autotune(compiled, *args, lock=...) in all processes, or tune in one, "
            "and give all of them the lock file: placement='thunder.lock.toml'.",
        )


def slowest(entries: Sequence[Entry | None]) -> Entry | None:
    """Return the entry of a group from those of its processes.

    A candidate takes the time of the slowest process, and is out where it is out in one.
    """
    found = [entry for entry in entries if entry is not None]
    if len(found) < len(entries):
        return None
    names = set(found[0].figures).intersection(*(entry.figures for entry in found))
    refused = {
        name: why if all(name in entry.refused for entry in found) else f"{why} (in process {number})"
        for number, entry in reversed(list(enumerate(found)))
        for name, why in entry.refused.items()
    }
    figures = {name: _slowest(entry.figures[name] for entry in found) for name in names - refused.keys()}
    return replace(found[0], figures=figures, refused=refused)


def slowest_figures(found: Sequence[tuple[Figure, Figure] | None]) -> tuple[Figure, Figure] | None:
    """Return the times of the program by default and tuned in the slowest process of each."""
    times = [pair for pair in found if pair is not None]
    if len(times) < len(found):
        return None
    return _slowest(default for default, _ in times), _slowest(tuned for _, tuned in times)


def _slowest(figures: Iterable[Figure]) -> Figure:
    return max(figures, key=lambda figure: figure.us)
