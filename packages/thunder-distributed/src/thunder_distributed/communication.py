"""The collectives of a compiled program: which, in which group, and how many bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import thunder
from thunder.core.dtypes import to_torch_dtype
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.extend import numbers_of

from .collectives import COLLECTIVES, all_reduce
from .exchanges import EXCHANGES, rotate
from .process_groups import group_size

__all__ = [
    "Collective",
    "Communication",
    "calls_of_collectives",
    "collective_of",
    "collectives_of",
    "communication",
]


@dataclass(frozen=True)
class Collective:
    """One collective of a program.

    `shape` is that of the call for which the program was compiled. `nbytes` are the bytes of its whole
    tensor: what an all-gather returns, and the others take. `sent` are the bytes that a process sends in a
    ring of n processes: (n - 1) / n of them, of an all-reduce twice that (Patarasuk and Yuan, Bandwidth
    optimal all-reduce algorithms, 2009).
    """

    trace: str
    name: str
    group: str
    size: int
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    source: str

    @property
    def sent(self) -> int:
        """Return the bytes that a process sends."""
        if self.name in (rotate.name, "send", "receive"):
            return 0 if self.name == "receive" else self.nbytes
        rounds = 2 if self.name == all_reduce.name else 1
        return rounds * self.nbytes * (self.size - 1) // self.size

    @property
    def signature(self) -> str:
        """Return what has to be equal in all processes."""
        return f"{self.name} {self.dtype}{list(self.shape)}"


class Communication(tuple[Collective, ...]):
    """The collectives of a program in their order; its text is a table."""

    __slots__ = ()

    @property
    def nbytes(self) -> int:
        """Return the sum of the bytes of the whole tensors."""
        return sum(collective.nbytes for collective in self)

    @property
    def sent(self) -> int:
        """Return the bytes that a process sends in one call, and its backward."""
        return sum(collective.sent for collective in self)

    def __str__(self) -> str:
        head = ("trace", "collective", "group", "processes", "bytes", "sent", "source")
        rows = [
            (c.trace, c.signature, c.group, str(c.size), str(c.nbytes), str(c.sent), c.source) for c in self
        ]
        widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
        lines = (
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in (head, *rows)
        )
        return "\n".join(lines)


def communication(compiled: Any) -> Communication:
    """Return the collectives that the last call of a compiled object runs, and its backward.

    Raises NotCompiled and NeverCalled.
    """
    forward, backward = thunder.last_traces(compiled), thunder.last_backward_traces(compiled)
    final = [(passes[-1], name) for passes, name in ((forward, "forward"), (backward, "backward")) if passes]
    return Communication(collective for trace, name in final for collective in collectives_of(trace, name))


def collectives_of(trace: TraceCtx, name: str) -> Iterator[Collective]:
    """Yield the collectives of a trace, which is called `name`."""
    for bsym in calls_of_collectives(trace.bound_symbols):
        yield collective_of(bsym, name)


def collective_of(bsym: BoundSymbol, name: str) -> Collective:
    """Return the collective that a statement calls, in a trace that is called `name`."""
    operand, group = bsym.args[:2]
    largest = max(math.prod(numbers_of(p.shape)) for p in (operand, bsym.output))
    return Collective(
        trace=name,
        name=bsym.sym.name,
        group=group,
        size=group_size(group),
        dtype=operand.dtype.shortname(),
        shape=numbers_of(operand.shape),
        nbytes=largest * to_torch_dtype(operand.dtype).itemsize,
        source=f"{bsym.source_filename}:{bsym.source_positions}" if bsym.source_filename else "",
    )


def calls_of_collectives(bsyms: Sequence[BoundSymbol]) -> Iterator[BoundSymbol]:
    """Yield the calls of collectives, those within composites included."""
    for bsym in bsyms:
        if bsym.sym.id in COLLECTIVES | EXCHANGES:
            yield bsym
        else:
            yield from calls_of_collectives(bsym.subsymbols)
