"""Schedules of pipelines: their pictures, costs as published, and what the checker finds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from distributed.random_pipelines import SCHEDULES
from sweeping import one_in
from thunder import InvalidArgument
from thunder.distributed.schedules import (
    Action,
    Schedule,
    check,
    gpipe,
    interleaved,
    one_f_one_b,
    zero_bubble,
)
from thunder_distributed.pipelines.actions import Message
from thunder_distributed.pipelines.schedule_checks import check_messages, with_messages
from thunder_distributed.pipelines.schedules import schedule_named

SIZES = [(p, m) for p in (1, 2, 3, 4, 8) for m in (1, 2, 3, 4, 8, 16, 24)]


def made(name: str, ranks: int, microbatches: int) -> Schedule:
    stages = 2 * ranks if name == "interleaved" else ranks
    return schedule_named(name, ranks=ranks, microbatches=microbatches, stages=stages)


def test_pictures():
    assert str(gpipe(ranks=2, microbatches=2)).splitlines() == [
        "gpipe: 2 ranks, 2 stages, 2 microbatches, 33% bubble",
        "rank 0  F0 F1 .  .  .  B0 B0 B1 B1",
        "rank 1  .  F0 F1 B0 B0 B1 B1 .  .",
    ]
    assert str(zero_bubble(ranks=2, microbatches=3)).splitlines() == [
        "zero bubble: 2 ranks, 2 stages, 3 microbatches, 10% bubble",
        "rank 0  F0 F1 .  B0 W0 F2 B1 W1 B2 W2",
        "rank 1  .  F0 B0 F1 B1 W0 F2 B2 W1 W2",
    ]


@pytest.mark.parametrize(("ranks", "microbatches"), SIZES)
def test_costs_are_those_of_the_papers(ranks: int, microbatches: int):
    """A forward takes 1, a backward 2, of which the gradients of inputs take 1."""
    p, m = ranks, microbatches
    schedule = gpipe(ranks=p, microbatches=m)
    assert schedule.simulate().waiting == pytest.approx([3 * (p - 1)] * p)
    assert check(schedule).bubble == pytest.approx((p - 1) / (m + p - 1))
    assert check(schedule).saved == (m,) * p
    schedule = one_f_one_b(ranks=p, microbatches=m)
    assert schedule.simulate().waiting == pytest.approx([3 * (p - 1)] * p)
    assert check(schedule).saved == tuple(min(m, p - rank) for rank in range(p))
    schedule = zero_bubble(ranks=p, microbatches=m)
    assert max(check(schedule).saved) == min(m, p)
    if m >= p:
        assert schedule.simulate().waiting == pytest.approx([p - 1] * p)


@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize(("ranks", "groups"), [(2, 1), (2, 4), (3, 2), (4, 2), (4, 3)])
def test_interleaving_divides_the_bubble_by_the_stages_of_a_rank(ranks: int, groups: int, chunks: int):
    p, m, v = ranks, ranks * groups, chunks
    schedule = interleaved(ranks=p, microbatches=m, stages=v * p)
    # a stage takes 1 / v of the time
    assert schedule.simulate().bubble == pytest.approx((p - 1) / (v * m + p - 1))
    if v > 1:
        most = [(v - 1) * p + 2 * (p - rank) - 1 for rank in range(p)]
        assert check(schedule).saved == tuple(min(m * v, n) for n in most)


def test_times_of_stages_and_messages_are_those_that_are_given():
    schedule = one_f_one_b(ranks=2, microbatches=1)
    costs = [{"F": 2, "B": 1, "W": 1}, {"F": 3, "B": 4, "W": 5}]
    simulation = schedule.simulate(costs, message=0.5)
    assert simulation.times[Action("B", 1, 0)] == (5.5, 14.5)
    assert simulation.total == 17
    assert simulation.busy == (4, 12)


def _mutated(schedule: Schedule, r: random.Random) -> Schedule:
    """Return a schedule of which one action is dropped, doubled, moved, or changed."""
    rows = [list(row) for row in schedule.rows]
    row = r.choice(rows)
    at = r.randrange(len(row))
    match r.randrange(4):
        case 0:
            del row[at]
        case 1:
            row.insert(r.randrange(len(row)), row[at])
        case 2:
            r.choice([other for other in rows if other is not row] or [row]).append(row.pop(at))
        case 3:
            row[at] = replace(row[at], microbatch=schedule.microbatches)
    return replace(schedule, rows=tuple(map(tuple, rows)))


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_checker_finds_each_changed_action(name: str):
    for seed in range(40):
        r = random.Random(seed)
        with pytest.raises(InvalidArgument, match=r"schedule|row of rank"):
            check(_mutated(made(name, r.choice([2, 3]), 6), r))


@pytest.mark.parametrize("name", SCHEDULES)
def test_rows_in_another_order_run_or_their_ranks_wait_for_each_other(name: str):
    """The judge runs all orders of the rows: an action runs if those that it needs have run."""
    outcomes = set()
    for seed in range(60):
        r = random.Random(seed)
        schedule = made(name, 2, 2)
        rows = [list(row) for row in schedule.rows]
        for row in rows:
            a, b = r.randrange(len(row)), r.randrange(len(row))
            row[a], row[b] = row[b], row[a]
        changed = replace(schedule, rows=tuple(map(tuple, rows)))
        runs = _runs(changed)
        outcomes.add(runs)
        if runs:
            check(changed)
        else:
            with pytest.raises(InvalidArgument, match="wait for each other"):
                check(changed)
    assert outcomes == {True, False}


def _runs(schedule: Schedule) -> bool:
    over: set[tuple[str, int, int]] = set()
    rest = [list(row) for row in schedule.rows]
    last = schedule.stages - 1
    while any(rest):
        for row in rest:
            if not row:
                continue
            kind, stage, m = row[0].kind, row[0].stage, row[0].microbatch
            before = {
                "F": [("F", stage - 1, m)] if stage else [],
                "B": [("F", stage, m), *([("B", stage + 1, m)] if stage < last else [])],
                "W": [("B", stage, m)],
            }[kind]
            if over.issuperset(before):
                over.add((kind, stage, m))
                del row[0]
                break
        else:
            return False
    return True


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.parametrize("seed", one_in(5, range(10)))
def test_messages_arrive_whatever_the_speeds_and_without_buffers(name: str, seed: int):
    r = random.Random(seed)
    schedule = made(name, r.choice([2, 3, 4]), 12)
    pairs = [(i, j) for i in range(schedule.stages) for j in range(i + 1, schedule.stages)]
    skipping = [pair for pair in pairs if pair[1] == pair[0] + 1 or r.random() < 0.3]
    rows = with_messages(schedule, skipping)
    check_messages(schedule, rows)
    for rank, row in enumerate(rows):
        assert [entry for entry in row if isinstance(entry, Action)] == list(schedule.rows[rank])
        for i, entry in enumerate(row):
            if not isinstance(entry, Message):
                continue
            if entry.sends:  # after what computes it
                assert Action(entry.kind, entry.source, entry.microbatch) in row[:i]
            else:  # before what reads it
                assert Action(entry.kind, entry.target, entry.microbatch) in row[i:]


def test_messages_in_the_order_of_actions_alone_would_be_a_deadlock():
    """1F1B sends an activation while the next stage sends a gradient."""
    schedule = one_f_one_b(ranks=2, microbatches=3)
    rows = []
    for rank, row in enumerate(schedule.rows):
        entries = []
        for action in row:
            other = 1 - rank
            if (action.kind == "F") == (rank == 1):
                entries.append(Message(action.kind, other, rank, action.microbatch, sends=False))
            entries.append(action)
            if (action.kind == "F") == (rank == 0):
                entries.append(Message(action.kind, rank, other, action.microbatch, sends=True))
        rows.append(entries)
    with pytest.raises(InvalidArgument, match="deadlock without buffers"):
        check_messages(schedule, rows)


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"name": "zb"}, "is not a schedule"),
        ({"name": "interleaved", "stages": 3}, "3 stages cannot be divided among 2 ranks"),
        ({"name": "interleaved", "stages": 4, "microbatches": 3}, "a multiple of 2 microbatches"),
        ({"name": "1f1b", "stages": 4}, "has one stage on each rank"),
        ({"name": "gpipe", "microbatches": 0}, "microbatches=0 is not a number"),
    ],
)
def test_schedules_that_do_not_exist_are_refused(arguments: dict, match: str):
    with pytest.raises(InvalidArgument, match=match):
        schedule_named(**{"ranks": 2, "microbatches": 4, "stages": 2, **arguments})
