"""Schedules of pipelines as data: what each rank does, in which order.

    print(one_f_one_b(ranks=2, microbatches=3))

    1f1b: 2 ranks, 2 stages, 3 microbatches, 33% bubble
    rank 0  F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2
    ...

`F3` is the forward of microbatch 3, `B3` its backward, of which `W3` is the part that computes the gradients
of parameters where the two are apart. Of a rank with several stages the picture has the stage, `F3@1`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from thunder.core.errors import InvalidArgument

from .actions import Action
from .simulation import UNITS, Simulation, simulated

__all__ = ["SCHEDULES", "Schedule", "gpipe", "interleaved", "one_f_one_b", "schedule_named", "zero_bubble"]


@dataclass(frozen=True)
class Schedule:
    """What each rank of a pipeline does, in its order. Stage `s` is on rank `s % ranks`.

    Its text is a picture, in which a column is the time of a forward.

    Attributes:
        name: what the schedule is called.
        stages: the number of stages, a multiple of the number of ranks.
        microbatches: the number of parts of a batch.
        rows: for each rank, its actions.
    """

    name: str
    stages: int
    microbatches: int
    rows: tuple[tuple[Action, ...], ...]

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return len(self.rows)

    @cached_property
    def splits_backward(self) -> bool:
        """Whether the gradients of parameters are computed apart from those of inputs."""
        return any(action.kind == "W" for row in self.rows for action in row)

    def rank_of(self, stage: int) -> int:
        """Return the rank that has a stage."""
        return stage % self.ranks

    def stages_of(self, rank: int) -> range:
        """Return the stages of a rank."""
        return range(rank, self.stages, self.ranks)

    def simulate(
        self,
        costs: Mapping[str, float] | Sequence[Mapping[str, float]] = UNITS,
        message: float = 0.0,
    ) -> Simulation:
        """Return the times of the actions; `costs` and `message` are those of `simulated`."""
        return simulated(self.rows, self.stages, costs, message)

    def __str__(self) -> str:
        simulation = self.simulate()
        cells = [self._cells(rank, simulation) for rank in range(self.ranks)]
        width = max(len(cell) for line in cells for cell in line)
        head = (
            f"{self.name}: {self.ranks} ranks, {self.stages} stages, {self.microbatches} microbatches, "
            f"{simulation.bubble:.0%} bubble"
        )
        lines = (" ".join(cell.ljust(width) for cell in line).rstrip() for line in cells)
        return "\n".join([head, *(f"rank {rank}  {line}" for rank, line in enumerate(lines))])

    def _cells(self, rank: int, simulation: Simulation) -> list[str]:
        cells: list[str] = []
        for action in self.rows[rank]:
            begin, end = simulation.times[action]
            cells += ["."] * (round(begin) - len(cells))
            text = str(action) if self.stages > self.ranks else f"{action.kind}{action.microbatch}"
            cells += [text] * round(end - begin)
        return cells + ["."] * (round(simulation.total) - len(cells))


def gpipe(*, ranks: int, microbatches: int) -> Schedule:
    """Return the schedule of GPipe: all forwards, then all backwards.

    Each rank waits for (p - 1) forwards and backwards, p the number of ranks, and saves the activations of
    all microbatches (Huang et al., GPipe: efficient training of giant neural networks using pipeline
    parallelism, 2019).
    """
    _check(ranks, microbatches)
    numbers = range(microbatches)
    rows = (
        (*(Action("F", rank, m) for m in numbers), *(Action("B", rank, m) for m in numbers))
        for rank in range(ranks)
    )
    return Schedule("gpipe", ranks, microbatches, tuple(rows))


def one_f_one_b(*, ranks: int, microbatches: int) -> Schedule:
    """Return the schedule 1F1B: after some forwards, each rank takes one backward for each forward.

    The bubble is that of GPipe. Rank r saves the activations of at most p - r microbatches (Narayanan et al.,
    PipeDream: generalized pipeline parallelism for DNN training, 2019; with flushes, the same and others,
    Efficient large-scale language model training on GPU clusters using Megatron-LM, 2021).
    """
    _check(ranks, microbatches)
    rows = []
    for rank in range(ranks):
        forwards = [Action("F", rank, m) for m in range(microbatches)]
        backwards = [Action("B", rank, m) for m in range(microbatches)]
        rows.append(_alternated(forwards, backwards, ranks - rank - 1))
    return Schedule("1f1b", ranks, microbatches, tuple(rows))


def interleaved(*, ranks: int, microbatches: int, stages: int) -> Schedule:
    """Return the interleaved schedule 1F1B: each rank has v = stages / ranks stages.

    The bubble is 1 / v of that of 1F1B: stages are shorter. Rank r saves the activations of at most
    (v - 1) p + 2 (p - r) - 1 microbatches of a stage (Narayanan et al., Efficient large-scale language model
    training on GPU clusters using Megatron-LM, 2021, section 2.2). Raises InvalidArgument unless the number
    of microbatches is a multiple of that of ranks, as there.
    """
    _check(ranks, microbatches)
    if stages % ranks:
        raise InvalidArgument(
            f"{stages} stages cannot be divided among {ranks} ranks", hint="Use a multiple of their number."
        )
    if microbatches % ranks:
        raise InvalidArgument(
            f"the interleaved schedule takes a multiple of {ranks} microbatches, the number of ranks",
            found={"microbatches": microbatches},
            hint="Change microbatches=, or use schedule='1f1b'.",
        )
    chunks = stages // ranks
    if chunks == 1:
        return one_f_one_b(ranks=ranks, microbatches=microbatches)
    rows = []
    for rank in range(ranks):
        forwards, backwards = [], []
        for first in range(0, microbatches, ranks):
            for chunk in range(chunks):
                for m in range(first, first + ranks):
                    forwards.append(Action("F", chunk * ranks + rank, m))
                    backwards.append(Action("B", (chunks - 1 - chunk) * ranks + rank, m))
        rows.append(_alternated(forwards, backwards, 2 * (ranks - rank - 1) + (chunks - 1) * ranks))
    return Schedule("interleaved", stages, microbatches, tuple(rows))


def zero_bubble(*, ranks: int, microbatches: int) -> Schedule:
    """Return a schedule in which gradients of parameters fill the times when ranks would wait: ZB-H1.

    No rank saves the activations of more than p microbatches, the most that 1F1B saves. Where a forward, the
    gradients of inputs, and those of parameters take the same time, ranks wait a third of the time of 1F1B,
    (p - 1) of them, if there are enough microbatches (Qi et al., Zero bubble pipeline parallelism, 2023).
    Rank r begins as in 1F1B, and computes the gradients of parameters of a microbatch r microbatches after
    those of inputs, so that the next rank gets the latter early.
    """
    _check(ranks, microbatches)
    simple = one_f_one_b(ranks=ranks, microbatches=microbatches)
    rows = []
    for rank in range(ranks):
        row: list[Action] = []
        for action in simple.rows[rank]:
            row.append(action)
            if action.kind == "B":
                last = microbatches if action.microbatch == microbatches - 1 else action.microbatch - rank + 1
                row += (Action("W", rank, m) for m in range(max(action.microbatch - rank, 0), last))
        rows.append(tuple(row))
    return Schedule("zero bubble", ranks, microbatches, tuple(rows))


def _alternated(forwards: list[Action], backwards: list[Action], ahead: int) -> tuple[Action, ...]:
    """Return so many forwards, then one forward and one backward in turns, then the other backwards."""
    ahead = min(ahead, len(forwards))
    row = forwards[:ahead]
    for forward, backward in zip(forwards[ahead:], backwards, strict=False):
        row += [forward, backward]
    return (*row, *backwards[len(forwards) - ahead :])


def _check(ranks: int, microbatches: int) -> None:
    for name, value in (("ranks", ranks), ("microbatches", microbatches)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidArgument(f"{name}={value!r} is not a number of {name}")


def _with_one_stage(make: Callable[..., Schedule], name: str) -> Callable[..., Schedule]:
    def schedule(*, ranks: int, microbatches: int, stages: int) -> Schedule:
        if stages != ranks:
            raise InvalidArgument(
                f"schedule={name!r} has one stage on each rank",
                found={"stages": stages, "ranks": ranks},
                hint="Use schedule='interleaved' for several.",
            )
        return make(ranks=ranks, microbatches=microbatches)

    return schedule


#: the name of a schedule → the function of ranks, microbatches and stages that returns it
SCHEDULES: Final[Mapping[str, Callable[..., Schedule]]] = {
    "gpipe": _with_one_stage(gpipe, "gpipe"),
    "1f1b": _with_one_stage(one_f_one_b, "1f1b"),
    "interleaved": interleaved,
    "zero bubble": _with_one_stage(zero_bubble, "zero bubble"),
}


def schedule_named(name: str, *, ranks: int, microbatches: int, stages: int) -> Schedule:
    """Return a schedule of the table. Raises InvalidArgument for another name."""
    make = SCHEDULES.get(name) if isinstance(name, str) else None
    if make is None:
        raise InvalidArgument(
            f"schedule={name!r} is not a schedule",
            found={"schedules": ", ".join(SCHEDULES)},
            hint="Write one of these names, or pass a Schedule.",
        )
    return make(ranks=ranks, microbatches=microbatches, stages=stages)
