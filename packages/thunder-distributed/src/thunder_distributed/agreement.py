"""The agreement of all processes on the next program, whenever it is not the one that they expect.

Processes whose programs communicate in another order wait for each other forever, or add gradients of
different parameters. Before a program communicates, it says so (`begin`).

Note [Expected programs]
The processes of a group have begun the same programs so far. So they have the same expectation: the program
that followed the last few, or the last one, when these last came in this order. Who begins the expected
program goes on at once. Who begins another one writes it into the store of `torch.distributed`, and waits
until all have written the same. In a training loop that is at the beginning alone:

    forward   backward   forward   backward   forward   backward
    compared  compared   compared  expected   expected  expected   …

If one process begins another program than the rest, it waits in the store, and the rest in a collective that
it does not take part in: no wrong value is computed. The one that waits in the store asks the others, hears
that they have begun the expected program, and sets an alarm, which ends their collective (Note [Alarms] in
`watching`). A program that was left by an error before its last collective is part of the expectation.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

from .comparison import compare
from .disagreements import WEIGHTS
from .presence import note_begun
from .running import Running, known_sequence, running_in

__all__ = ["agree_on_weights", "begin"]

#: the number of programs that an expectation is based on
CONTEXT: Final = 8
#: the most expectations of a group; then all are forgotten, in each process at the same program
EXPECTATIONS: Final = 4096


def begin(name: str, digest: str, program: str = "") -> None:
    """Begin a program in a group; compare it with those of the others unless it is the expected one.

    `digest` is that of the collectives, `program` that of the statements; those of processes with other
    inputs are not compared. Raises ProgramsDiffer with both sequences, or the first statements that differ,
    and ProcessMissing with the rank of a process that begins no program within the timeout of the process
    group.
    """
    running = running_in(name)
    if running.is_alone:
        return
    event = digest
    if running.issued != running.length:
        event += f" after {running.issued} of {running.length} collectives of {running.digest}"
    is_expected = _expected(running) == event
    try:
        if not is_expected:
            compare(running, event, known_sequence(digest), program)
    finally:
        running.count += 1
    note_begun(name, running.count - 1, event)
    if len(running.expected) >= EXPECTATIONS:
        running.expected.clear()
    for start in range(len(running.recent)):
        running.expected[running.recent[start:]] = event
    running.is_expected = is_expected
    running.recent = (*running.recent, event)[-CONTEXT:]
    running.digest, running.issued, running.length = digest, 0, len(known_sequence(digest))


def _expected(running: Running) -> str | None:
    """Return the program that followed the most of the last programs when they last came in this order."""
    for start in range(len(running.recent)):
        expected = running.expected.get(running.recent[start:])
        if expected is not None:
            return expected
    return None


def agree_on_weights(name: str, lines: Sequence[str]) -> None:
    """Compare the lines that describe the weights of a module with those of the other processes of a group.

    Raises WeightsDiffer with the first line that differs, and ProcessMissing as `begin` does.
    """
    running = running_in(name)
    try:
        compare(running, f"{WEIGHTS} {hashlib.sha256(repr(lines).encode()).hexdigest()[:16]}", lines)
    finally:
        running.count += 1
