"""Checks of schedules, the memory that they need, and the messages that they send.

Note [Order of messages]
A rank that sends waits until the other one receives, if a backend has no buffers. So messages are laid into
the rows of both ranks at one moment: when, in the order of time, the action that computes them is over. All
rows then are parts of one order of events, in which a message is one event of two ranks. The first event that
has not happened can always happen, so that no order of speeds leads to a deadlock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from thunder.core.errors import InvalidArgument

from .actions import Action, Message
from .schedules import Schedule

__all__ = ["ScheduleFacts", "check", "check_messages", "with_messages"]


@dataclass(frozen=True)
class ScheduleFacts:
    """What `check` finds of a schedule.

    Attributes:
        bubble: the part of the time in which ranks wait, if F, B and W take the same time.
        saved: for each rank, the most microbatches of a stage whose activations it saves at a time.
    """

    bubble: float
    saved: tuple[int, ...]


def check(schedule: Schedule) -> ScheduleFacts:
    """Check a schedule, and return what it costs.

    Raises InvalidArgument for an action that is missing, there twice, or on a rank that does not have its
    stage; for a stage that does not exist; for ranks that wait for each other; and for an order of messages
    in which ranks without buffers would.
    """
    kinds = ("F", "B", "W") if schedule.splits_backward else ("F", "B")
    expected = [
        Action(kind, stage, m)  # type: ignore[arg-type]
        for kind in kinds
        for stage in range(schedule.stages)
        for m in range(schedule.microbatches)
    ]
    if not schedule.ranks or schedule.stages % schedule.ranks:
        raise InvalidArgument(
            f"a schedule of {schedule.stages} stages has {schedule.ranks} rows",
            hint="The number of stages is a multiple of the number of ranks.",
        )
    seen: set[Action] = set()
    for rank, row in enumerate(schedule.rows):
        for action in row:
            if action in seen:
                raise InvalidArgument(f"{action} is in the schedule twice")
            if schedule.rank_of(action.stage) != rank:
                raise InvalidArgument(
                    f"{action} is in the row of rank {rank}",
                    hint=f"Stage {action.stage} is on rank {schedule.rank_of(action.stage)}.",
                )
            seen.add(action)
    _check_same(seen, expected)
    edges = [(stage, stage + 1) for stage in range(schedule.stages - 1)]
    bubble = schedule.simulate().bubble
    check_messages(schedule, with_messages(schedule, edges))
    return ScheduleFacts(bubble, tuple(_most_saved(row, schedule.splits_backward) for row in schedule.rows))


def _check_same(seen: Collection[Action], expected: Iterable[Action]) -> None:
    expected = set(expected)
    for wrong, text in ((expected.difference(seen), "lacks"), (set(seen) - expected, "has")):
        if wrong:
            raise InvalidArgument(
                f"the schedule {text} {min(wrong)}" + (", which does not exist" if text == "has" else ""),
                found={"number of such actions": len(wrong)},
            )


def _most_saved(row: Sequence[Action], splits: bool) -> int:
    """Return the most forwards of a row whose backward is not over."""
    alive = most = 0
    for action in row:
        if action.kind == "F":
            alive += 1
            most = max(most, alive)
        elif action.kind == ("W" if splits else "B"):
            alive -= 1
    return most


def with_messages(
    schedule: Schedule,
    edges: Collection[tuple[int, int]],
    gradients: Collection[tuple[int, int]] | None = None,
) -> list[list[Action | Message]]:
    """Return what each rank does, with the messages between its stages (Note [Order of messages]).

    `edges` are the pairs of stages of which the second one reads values of the first one. `gradients` are
    those of which the second one returns gradients; None for all.
    """
    gradients = edges if gradients is None else gradients
    rows: list[list[Action | Message]] = [[] for _ in schedule.rows]
    times = schedule.simulate().times
    begun = sorted(times, key=lambda action: (times[action][0], action.stage, action.kind))
    # an action is put into its row when it begins, and what it sends when it ends, before what begins then
    events = [(times[a][0], 1, i, a) for i, a in enumerate(begun)]
    events += [(times[a][1], 0, i, a) for i, a in enumerate(begun)]
    for _, begins, _, action in sorted(events, key=lambda event: event[:3]):
        rank = schedule.rank_of(action.stage)
        if begins:
            rows[rank].append(action)
            continue
        for source, target in edges if action.kind == "F" else gradients:
            if action.kind == "W" or action.stage != (source if action.kind == "F" else target):
                continue
            ends = (source, target) if action.kind == "F" else (target, source)
            if schedule.rank_of(ends[0]) != schedule.rank_of(ends[1]):
                for end, sends in zip(ends, (True, False), strict=True):
                    message = Message(action.kind, *ends, action.microbatch, sends)
                    rows[schedule.rank_of(end)].append(message)
    return rows


def check_messages(schedule: Schedule, rows: Sequence[Sequence[Action | Message]]) -> None:
    """Raise InvalidArgument if ranks wait for each other, where a rank that sends waits for the other one.

    Actions take no time here: only the order of messages matters.
    """
    rest = [[entry for entry in row if isinstance(entry, Message)] for row in rows]
    position = [0] * len(rest)
    while True:
        heads = {rank: row[position[rank]] for rank, row in enumerate(rest) if position[rank] < len(row)}
        if not heads:
            return
        for rank, head in heads.items():
            other = schedule.rank_of(head.target if head.sends else head.source)
            partner = heads.get(other)
            if partner is not None and partner == _other_side(head):
                position[rank] += 1
                position[other] += 1
                break
        else:
            raise InvalidArgument(
                "the messages of a schedule lead to a deadlock without buffers",
                found={f"rank {rank}": str(head) for rank, head in heads.items()},
            )


def _other_side(message: Message) -> Message:
    return Message(message.kind, message.source, message.target, message.microbatch, not message.sends)
