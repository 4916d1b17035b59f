"""Errors about processes that do not do the same: what they say, from what is known of two of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch.distributed as dist

from thunder.core.errors import UserError

from .presence import note_lost

__all__ = [
    "WEIGHTS",
    "ProcessMissing",
    "ProgramsDiffer",
    "WeightsDiffer",
    "differing",
    "error_of",
    "shown",
    "unreachable",
]

#: how the comparison of weights begins
WEIGHTS: Final = "weights"
#: the number of collectives that an error shows before and after the first difference
SHOWN: Final = 10


class ProgramsDiffer(UserError, RuntimeError):
    """Two processes have begun programs with different collectives, or different statements."""


class WeightsDiffer(UserError, RuntimeError):
    """Two processes begin with other weights, or with other modules."""


class ProcessMissing(UserError, RuntimeError):
    """A process has not begun a program, or not taken part in a collective, within the timeout."""


def error_of(alarm: dict[str, Any], what: str = "") -> UserError:
    """Return the error that an alarm is about; `what` this process waits for."""
    if "first" in alarm:
        kind = alarm.get("kind", "collectives")
        return differing(*alarm["first"], *alarm["second"], kind=kind, others=alarm.get("others"))
    if "silent" in alarm:
        found = {"silent": f"it has not answered for {alarm['seconds']:.1f} s"}
        lost = alarm["silent"]
    else:
        found, lost = alarm["found"], alarm["missing"]
    note_lost(dist.get_rank(), [lost])
    return ProcessMissing(
        f"rank {lost} did not take part in {what}",
        found=found,
        hint="Look at that rank: its process may be stopped, or its machine. The option hang_timeout says "
        "after how many seconds without an answer a process is missed.",
    )


def unreachable(what: str, error: Exception) -> ProcessMissing:
    """Return the error about a store that cannot be reached."""
    return ProcessMissing(
        f"{what} fails, and the store of the process group cannot be reached",
        found={"error": str(error).partition("\n")[0]},
        hint="The process that hosts the store has ended: rank 0, or the agent of torchrun.",
    )


def differing(
    rank: int,
    first: Sequence[str],
    other: int,
    second: Sequence[str],
    *,
    kind: str = "collectives",
    others: Mapping[str, Sequence[int]] | None = None,
) -> ProgramsDiffer | WeightsDiffer:
    """Return the error about the collectives, the statements, or the weights of two global ranks.

    `others` are the ranks with the same program as one of the two.
    """
    pairs = zip(first, second, strict=False)
    shorter = min(len(first), len(second))
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), shorter)
    if kind == "collectives":
        found = {f"rank {rank}": shown(first, at), f"rank {other}": shown(second, at)}
    else:
        found = {
            f"rank {r}": lines[at] if at < len(lines) else "none"
            for r, lines in ((rank, first), (other, second))
        }
    for one, same in (others or {}).items():
        if same:
            found[f"like rank {one}"] = ", ".join(map(str, same))
    if kind == WEIGHTS:
        return WeightsDiffer(
            f"ranks {rank} and {other} begin with other weights", found=found, hint=_HINTS[kind]
        )
    return ProgramsDiffer(
        f"ranks {rank} and {other} have begun programs with other {kind}", found=found, hint=_HINTS[kind]
    )


_HINTS: Final = {
    "collectives": "Each process has to run the same program: the same parameters, in the same order, and "
    "branches that do not depend on the rank.",
    "statements": "Look whether all processes have the same code and packages. Those that mean to compute "
    "differently are compiled with same_program=False.",
    WEIGHTS: "Make or load the module equally in each process, by the same seed or from the same file. With "
    "broadcast_from=0 all begin with the values of one.",
}


def shown(sequence: Sequence[str], at: int = 0) -> str:
    """Return a sequence as text, of which only the part around an index is shown if it is long."""
    start, end = max(at - SHOWN, 0), at + SHOWN
    lines = list(sequence[start:end])
    if start:
        lines.insert(0, f"… {start} others …")
    if end < len(sequence):
        lines.append(f"… {len(sequence) - end} more …")
    return "; ".join(lines) or "none"
