"""The comparison of what processes begin, through the store of the process group."""

from __future__ import annotations

import base64
import json
import time
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import torch.distributed as dist
from torch.distributed import distributed_c10d

from thunder.core.errors import ThunderError

from .disagreements import WEIGHTS, ProcessMissing, error_of, shown, unreachable
from .presence import Answer, ask, note_lost
from .running import Running, known_program, known_sequence

__all__ = ["arrives", "compare", "grace_of"]

#: how often it is looked whether a process that is waited for has ended, in seconds
INTERVAL: Final = 0.25


def grace_of(timeout: float) -> float:
    """Return how many seconds longer than the timeout a process waits for the reports of others."""
    return min(5.0, timeout / 2)


def compare(running: Running, event: str, sequence: Sequence[str], program: str = "") -> None:
    """Compare what this process begins with what the others begin.

    Raises ProgramsDiffer or WeightsDiffer, and ProcessMissing with the rank of a process that begins nothing,
    or for a store that cannot be reached.
    """
    try:
        _compare(running, event, sequence, program)
    except ThunderError:
        raise
    except RuntimeError as error:  # that of a store is of another class for each kind
        raise unreachable("the comparison of programs", error) from error


def _compare(running: Running, event: str, sequence: Sequence[str], program: str) -> None:
    """Write a program; the first process of the group compares, the others read its verdict."""
    store = distributed_c10d._get_default_store()
    key, rank, timeout = running.key, running.rank, running.timeout
    inputs, statements = known_program(program)
    if statements and program not in running.written:
        running.written.add(program)
        store.set(
            running.program_key(rank, program),
            base64.b85encode(zlib.compress("\n".join(statements).encode())).decode(),
        )
    written = event, program if inputs else "", inputs
    store.set(f"{key}/{rank}", json.dumps([*written, sequence]))
    if rank == 0:
        verdict = _verdict(store, running, written, sequence)
        store.set(f"{key}/verdict", json.dumps(verdict))
    else:
        absence = _absence(running, 0, f"{key}/verdict", timeout + 2 * grace_of(timeout))
        if absence is None:
            verdict = json.loads(store.get(f"{key}/verdict"))
        else:
            verdict = _absent(store, running, 0, sequence, absence)
    if not verdict:
        return
    store.set(running.alarm_key(str(running.count)), json.dumps(verdict))
    if "missing" in verdict:
        note_lost(dist.get_rank(), [verdict["missing"]])
        begun = "to compile a module" if event.startswith(WEIGHTS) else "a program"
        raise ProcessMissing(
            f"rank {verdict['missing']} has not begun {begun} that this process has begun",
            found={**verdict["found"], "this process": shown(sequence)},
            hint="Each process has to call the module equally often, and with gradients or without. Look at "
            "the output of that rank: it may have raised an error or have ended.",
        )
    raise error_of(verdict)


#: what a process has written of its program: event, digest of the statements, and of the inputs
_Written = tuple[str, str, str]


def _verdict(store: Any, running: Running, own: _Written, sequence: Sequence[str]) -> dict[str, Any]:
    """Compare the programs of all processes: collectives, and statements where inputs are the same."""
    size = dist.get_world_size(running.group)
    statements = {own[2]: own[1]}
    deadline = time.monotonic() + running.timeout
    for other in range(1, size):
        key = f"{running.key}/{other}"
        absence = _absence(running, other, key, max(deadline - time.monotonic(), 0.001))
        if absence is not None:
            return _absent(store, running, other, sequence, absence)
        event, program, inputs, _ = json.loads(store.get(key))
        if event != own[0] or statements.setdefault(inputs, program) != program:
            return _difference(store, running)
    return {}


def _agree(first: _Written, second: Sequence[str]) -> bool:
    """Return whether programs have the same collectives, and the same statements for the same inputs."""
    return first[0] == second[0] and (first[2] != second[2] or first[1] == second[1])


def _difference(store: Any, running: Running) -> dict[str, Any]:
    """Return the verdict on programs that differ: one of those that most processes have, and another one."""
    ranks = dist.get_process_group_ranks(running.group)
    programs = {
        index: json.loads(store.get(f"{running.key}/{index}"))
        for index in range(len(ranks))
        if store.check([f"{running.key}/{index}"])
    }
    like = {i: [j for j in programs if _agree(tuple(programs[i][:3]), programs[j][:3])] for i in programs}
    # a program for other inputs agrees with two that do not agree with each other
    usual = max((i for i in programs if len(like[i]) < len(programs)), key=lambda index: len(like[index]))
    other = next(index for index in programs if index not in like[usual])
    first, second = programs[usual], programs[other]
    verdict: dict[str, Any] = {
        "first": [ranks[usual], [*_left(first[0]), *first[3]]],
        "second": [ranks[other], [*_left(second[0]), *second[3]]],
        "others": {str(ranks[i]): [ranks[j] for j in like[i] if j != i] for i in (usual, other)},
    }
    if first[0] == second[0]:
        for name, index in (("first", usual), ("second", other)):
            key = running.program_key(index, programs[index][1])
            verdict[name][1] = zlib.decompress(base64.b85decode(store.get(key))).decode().split("\n")
        verdict["kind"] = "statements"
    elif {program[0].partition(" ")[0] for program in (first, second)} == {WEIGHTS}:
        verdict["kind"] = WEIGHTS
    return verdict


def _absent(
    store: Any, running: Running, other: int, sequence: Sequence[str], absence: Absence
) -> dict[str, Any]:
    """Return the verdict on a process that has not written its program: it may have begun another one."""
    ranks = dist.get_process_group_ranks(running.group)
    if absence.event:
        theirs = known_sequence(absence.event.partition(" after ")[0])
        return {
            "first": [ranks[running.rank], list(sequence)],
            "second": [ranks[other], [*_left(absence.event), *theirs]],
        }
    key = f"{running.key}/failed/{other}"
    if not absence.found and arrives(store, key, grace_of(running.timeout)):
        # it has waited in a collective, and reports that when its timeout is over
        theirs = json.loads(store.get(key))
        return {"first": [ranks[running.rank], list(sequence)], "second": [ranks[other], theirs]}
    return {"missing": ranks[other], "found": absence.found or {"timeout": f"{running.timeout:g} s"}}


@dataclass(frozen=True)
class Absence:
    """Why a process does not write a key: it has ended or is silent, or has begun another program."""

    found: dict[str, str] = field(default_factory=dict)
    event: str = ""


def _absence(running: Running, other: int, key: str, seconds: float) -> Absence | None:
    """Wait until a process of the group has written a key; return why it does not, if it does not."""
    store = distributed_c10d._get_default_store()
    rank = dist.get_process_group_ranks(running.group)[other]
    answered = began = time.monotonic()
    interval = INTERVAL / 256
    while running.can_be_seen and time.monotonic() + interval < began + seconds:
        if store.check([key]):  # a wait would print a warning when its time is over
            return None
        time.sleep(interval)
        interval = min(1.5 * interval, INTERVAL)
        if interval < INTERVAL / 4:
            continue
        answer, now = ask(rank), time.monotonic()
        absence = _absence_of(running, answer, now - answered)
        if absence is not None:
            return None if store.check([key]) else absence
        if not answer.is_silent:
            answered = now
    return None if arrives(store, key, max(began + seconds - time.monotonic(), 0.001)) else Absence()


def _absence_of(running: Running, answer: Answer, silent: float) -> Absence | None:
    """Return what an answer says about a process that has not begun the next program; None if it may yet."""
    if answer.has_ended:
        return Absence({"ended": "yes"})
    if answer.is_silent and running.hang_timeout is not None and silent > running.hang_timeout:
        return Absence({"silent": f"it has not answered for {silent:.1f} s"})
    number, event = answer.begun.get(running.name, (-1, ""))
    return Absence(event=event) if number >= running.count else None


def _left(event: str) -> list[str]:
    """Return how an event is shown before the collectives, if it is not the program alone."""
    _, _, left = event.partition(" after ")
    return [f"(after {left.rpartition(' of ')[0]} of the program before)"] if left else []


def arrives(store: Any, key: str, seconds: float) -> bool:
    """Return whether a key is written within a time, by a store that can be reached."""
    try:
        store.wait([key], timedelta(seconds=seconds))
    except RuntimeError:  # that of a timeout is of another class for each kind of store
        return False
    return True
