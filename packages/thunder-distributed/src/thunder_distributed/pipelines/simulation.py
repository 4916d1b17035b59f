"""The times of a schedule's actions, if each takes a given time and begins as early as it can."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from thunder.core.errors import InvalidArgument

from .actions import Action, needed_by

__all__ = ["UNITS", "Simulation", "simulated"]

#: a backward takes twice the time of a forward: one product for the gradients of inputs, one for those of
#: parameters
UNITS: Final[Mapping[str, float]] = {"F": 1.0, "B": 1.0, "W": 1.0}


@dataclass(frozen=True)
class Simulation:
    """When each action begins and ends, in the unit of the costs.

    `bubble` is the fraction of all ranks' time until the end in which they wait.
    """

    times: Mapping[Action, tuple[float, float]]
    busy: tuple[float, ...]

    @property
    def total(self) -> float:
        """The time at which the last action ends."""
        return max(end for _, end in self.times.values())

    @property
    def waiting(self) -> tuple[float, ...]:
        """For each rank, the time in which it waits."""
        return tuple(self.total - busy for busy in self.busy)

    @property
    def bubble(self) -> float:
        """The part of the time in which ranks wait, between 0 and 1."""
        return 1 - sum(self.busy) / (len(self.busy) * self.total)


def simulated(
    rows: Sequence[Sequence[Action]],
    stages: int,
    costs: Mapping[str, float] | Sequence[Mapping[str, float]] = UNITS,
    message: float = 0.0,
) -> Simulation:
    """Return the times of the actions of all ranks, each of which runs its row in order.

    Args:
        costs: the times of `F`, `B` and `W`, of every stage or of each; a backward that is one takes those of
            `B` and `W`.
        message: the time from the end of an action until another rank has what it sends.

    Raises InvalidArgument for actions that wait for each other, or for one that is in no row.
    """
    of_stage = [costs] * stages if isinstance(costs, Mapping) else list(costs)
    splits = any(action.kind == "W" for row in rows for action in row)
    times: dict[Action, tuple[float, float]] = {}
    rank_of = {action: rank for rank, row in enumerate(rows) for action in row}
    position, clock, busy = [0] * len(rows), [0.0] * len(rows), [0.0] * len(rows)
    while any(position[rank] < len(row) for rank, row in enumerate(rows)):
        has_run = False
        for rank, row in enumerate(rows):
            while position[rank] < len(row):
                action = row[position[rank]]
                needed = [*needed_by(action, stages, splits)]
                if not all(n in times for n in needed):
                    break
                begin = max(
                    [clock[rank], *(times[n][1] + (message if rank_of[n] != rank else 0.0) for n in needed)]
                )
                cost = of_stage[action.stage]
                length = cost[action.kind] + (cost["W"] if action.kind == "B" and not splits else 0.0)
                times[action] = begin, begin + length
                clock[rank], busy[rank] = begin + length, busy[rank] + length
                position[rank] += 1
                has_run = True
        if not has_run:
            raise _blocked(rows, position, times, stages, splits)
    return Simulation(times, tuple(busy))


def _blocked(
    rows: Sequence[Sequence[Action]],
    position: Sequence[int],
    times: Mapping[Action, object],
    stages: int,
    splits: bool,
) -> InvalidArgument:
    waiting = {}
    for rank, row in enumerate(rows):
        if position[rank] < len(row):
            action = row[position[rank]]
            missing = [n for n in needed_by(action, stages, splits) if n not in times]
            waiting[f"rank {rank}"] = f"{action} waits for {', '.join(map(str, missing))}"
    return InvalidArgument(
        "the ranks of a schedule wait for each other",
        found=waiting,
        hint="Put what others wait for before what waits, in each row.",
    )
