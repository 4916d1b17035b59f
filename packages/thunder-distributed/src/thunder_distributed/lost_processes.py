"""Collectives that fail: which process has ended, hangs, or runs another program.

A backend reports that a connection is lost, or that the time is over, and rarely with whom: in a ring it is a
neighbour that waits itself. So each process whose collective fails writes that into the store, and reads who
has written the same. A process that has written nothing is the one that is missing.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from thunder.core.errors import ThunderError

from .comparison import arrives, grace_of
from .disagreements import ProcessMissing, differing, error_of, unreachable
from .presence import has_ended, note_lost, reasons_of
from .running import Alarm, Running, count_collective, known_sequence, running_in
from .works import finish, wait_tensor

__all__ = ["finished", "naming_missing", "reporting", "waiting"]

#: how long the report of one process is waited for, before the others are looked at, in seconds
INTERVAL: Final = 0.05


@dataclass(frozen=True)
class _Issued:
    """A collective that was issued."""

    running: Running
    name: str
    began: float
    #: what it returned, if the next collective has to wait for it; see Note [Collectives of gloo]
    result: torch.Tensor | None = None


#: id of the result of a collective that is in flight → the collective
_in_flight: dict[int, _Issued] = {}


def reporting(name: str, fn: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """Return the function of a collective, which counts it and explains why it fails.

    The second argument is the name of the group, the last one whether the result is a future.
    """

    @wraps(fn)
    def collective(a: torch.Tensor, group: str, *args: Any) -> torch.Tensor:
        running, began = running_in(group), time.monotonic()
        if running.is_alone:
            return fn(a, group, *args)
        is_gloo = running.is_gloo(a.device)
        if is_gloo:
            _let_arrive()
        count_collective(running)
        with _explaining(issued := _Issued(running, name, began)):
            result = fn(a, group, *args)
        if args and args[-1] is True:
            _in_flight[id(result)] = replace(issued, result=result) if is_gloo else issued
        return result

    return collective


def waiting(fn: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the function that waits for a future, which explains why the collective fails."""

    @wraps(fn)
    def wait(future: torch.Tensor) -> torch.Tensor:
        with _explaining(_in_flight.pop(id(future), None)):
            return fn(future)

    return wait


def _let_arrive() -> None:
    """Wait for the collectives of gloo that are in flight."""
    for key, issued in [*_in_flight.items()]:
        if issued.result is not None:
            del _in_flight[key]
            with _explaining(issued):
                wait_tensor(issued.result)


@contextmanager
def _explaining(issued: _Issued | None) -> Iterator[None]:
    """Raise the error that explains why a collective fails, if it does."""
    try:
        yield
    except RuntimeError as error:
        explained = error if issued is None else _explained(error, issued)
        raise explained from (None if explained is error else error)


@contextmanager
def naming_missing(what: str, group: str) -> Iterator[None]:
    """Name the processes because of which `what` fails, which communicates outside of programs.

    All processes of the group do so equally often.
    """
    running, began = running_in(group), time.monotonic()
    running.others += 1
    _let_arrive()
    try:
        yield
    except ThunderError:
        raise
    except RuntimeError as error:
        if running.is_alone:
            raise
        if isinstance(error, Alarm):
            alarm = error.content
            raise _reachable(error, what, lambda: error_of(alarm, what)) from error
        key = f"{running.key_of(running.others)}/outside"
        explained = _reachable(error, what, partial(_unreported, error, running, key, what, began))
        raise explained from (None if explained is error else error)


def finished(work: Any, group: str) -> None:
    """Wait for a work of a group within `naming_missing`."""
    running = running_in(group)
    finish(work, running, f"outside {running.others}")


def _explained(error: RuntimeError, issued: _Issued) -> Exception:
    """Return the error that names the process because of which a collective fails; else the error itself."""
    running, name, began = issued.running, issued.name, issued.began
    if isinstance(error, ThunderError) or not running.digest:
        return error
    key = running.key_of(running.count - 1)  # that of the comparison when this program began
    what = f"{name}, number {running.issued} of {running.length} of this program"
    if isinstance(error, Alarm):
        return _reachable(error, name, lambda: error_of(error.content, what))
    own = known_sequence(running.digest)

    def of_other_program(ranks: list[int], other: int) -> Exception | None:
        store = distributed_c10d._get_default_store()
        if not running.is_expected or not store.check([f"{key}/{other}"]):
            return None
        *_, theirs = json.loads(store.get(f"{key}/{other}"))
        return differing(ranks[running.rank], own, ranks[other], theirs)

    explain = partial(_unreported, error, running, key, what, began, own, of_other_program)
    return _reachable(error, name, explain)


def _reachable(error: RuntimeError, name: str, explain: Callable[[], Exception]) -> Exception:
    """Return what explains an error, or that the store which says it cannot be reached."""
    try:
        return explain()
    except RuntimeError:  # that of a store that cannot be reached is of another class for each kind
        return unreachable(name, error)


def _unreported(
    error: RuntimeError,
    running: Running,
    key: str,
    what: str,
    began: float,
    report: Sequence[str] = (),
    explain: Callable[[list[int], int], Exception | None] = lambda ranks, other: None,
) -> Exception:
    """Report an error below a key of the store; return the one that names who has not, or the error itself.

    `explain` returns what is known of a process that has not reported: its index in the group.
    """
    store = distributed_c10d._get_default_store()
    timeout = running.timeout
    store.set(f"{key}/failed/{running.rank}", json.dumps(report))
    ranks = dist.get_process_group_ranks(running.group)
    note_lost(ranks[running.rank], ())
    missing = set(range(len(ranks))) - {running.rank}
    deadline = max(began + timeout, time.monotonic()) + grace_of(timeout)
    while missing:
        missing -= {other for other in missing if store.check([f"{key}/failed/{other}"])}
        for other in sorted(missing):
            if (explained := explain(ranks, other)) is not None:
                return explained
        ended = _ended(ranks, missing) if running.can_be_seen else set()
        if ended:
            found = {"ended": f"{time.monotonic() - began:.1f} s after this process had begun to wait"}
            hint = "Look at the output of that rank: it has ended, or destroyed its process group."
            return _missing(running, what, ended, found, hint, error)
        if time.monotonic() > deadline:
            break
        if missing:
            arrives(store, f"{key}/failed/{min(missing)}", INTERVAL)
    if not missing:
        return error
    hint = "Look at the output of that rank: it has ended, hangs, or has left the program by an error."
    lost = {ranks[other] for other in missing}
    return _missing(running, what, lost, {"timeout": f"{timeout:g} s"}, hint, error)


def _ended(ranks: Sequence[int], missing: Collection[int]) -> set[int]:
    """Return the global ranks that have ended, and not because others had; with those that these name."""
    ended = {ranks[other] for other in missing if has_ended(ranks[other])}
    reasons = {rank: lost for rank in ended if (lost := reasons_of(rank)) is not None}
    return (ended - reasons.keys()).union(*reasons.values())


def _missing(
    running: Running, what: str, lost: Collection[int], found: dict[str, str], hint: str, error: RuntimeError
) -> ProcessMissing:
    """Return the error that names ranks, and note it for those who ask this process."""
    note_lost(dist.get_process_group_ranks(running.group)[running.rank], lost)
    names = ", ".join(map(str, sorted(lost)))
    return ProcessMissing(
        f"rank{'s' if len(lost) > 1 else ''} {names} did not take part in {what}",
        found={**found, "error": _first_line(error)},
        hint=hint,
    )


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
