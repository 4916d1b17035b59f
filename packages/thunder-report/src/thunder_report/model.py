"""The data of a report: what is known of compiled programs, as values that JSON can express.

A program has entries, an entry has traces, a trace has stages, and a stage is a list of statements.
Statements are numbered: one that several stages have in common is there once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder_report.records import CompileRecord

__all__ = [
    "CollectiveCall",
    "Decision",
    "Entry",
    "Guard",
    "Holder",
    "LedgerLine",
    "Measured",
    "Memory",
    "Place",
    "Program",
    "Report",
    "Saved",
    "Size",
    "SourceFile",
    "Stage",
    "Statement",
    "StatementCost",
    "Trace",
]


@dataclass(frozen=True)
class Place:
    """Where a statement comes from: the user's line, torch's line below it, and the path of the module.

    `file` is a position in `Report.files`; `inner` is a text, `linear.py:134`. What is not known is empty.
    """

    file: int
    line: int
    inner: str = ""
    module: str = ""


@dataclass(frozen=True)
class Statement:
    """A line of a trace: its text, operator, place, executor and decomposition.

    `place` is a position in `Entry.places` or -1, `parts` are positions in `Entry.statements`. `kind` is
    `"call"`, `"region"`, `"view"`, `"release"`, `"collective"` or `"structure"`.
    """

    text: str
    symbol: str
    place: int
    executor: str
    kind: str
    parts: tuple[int, ...]


@dataclass(frozen=True)
class Stage:
    """A trace after one pass: its name, its duration (ns, None if not measured), statements by number."""

    name: str
    ns: int | None
    statements: tuple[int, ...]


@dataclass(frozen=True)
class Trace:
    """One of the functions of an entry, after each stage: `prologue`, `forward`, `backward` or `epilogue`."""

    name: str
    inputs: tuple[str, ...]
    stages: tuple[Stage, ...]


@dataclass(frozen=True)
class LedgerLine:
    """A call, the executor that runs it, and the reasons of the others, by number in `Entry.reasons`.

    `region` is the name of the fusion that it is in, `flops` and `nbytes` are those of its statement or its
    part of the region (None if the final trace does not have it).
    """

    trace: str
    symbol: str
    outputs: tuple[str, ...]
    claimed_by: str
    via: str
    region: str
    refusals: tuple[int, ...]
    skipped: tuple[int, ...]
    place: int
    facts: Mapping[str, str]
    flops: int | None
    nbytes: int | None


@dataclass(frozen=True)
class Holder:
    """Memory that is alive at the peak, with the statement that computes it.

    `name` is that of its first tensor.
    """

    name: str
    nbytes: int
    type: str
    place: int
    statement: str


@dataclass(frozen=True)
class Saved:
    """A tensor that the forward keeps for the backward, and the statements there that read it.

    `nbytes` is 0 for an input, which is there anyway, and for a tensor in the memory of another. `again` is
    what its computation would cost in the backward, operations and bytes; None for an input, and for numbers
    drawn at random, which would be others.
    """

    name: str
    nbytes: int
    type: str
    place: int
    statement: str
    shares: str
    readers: tuple[str, ...]
    again: tuple[int, int] | None


@dataclass(frozen=True)
class Memory:
    """Bytes: of inputs, and of what is alive while each statement of the final traces runs.

    `measured` has the same of the last call that was measured, None where a statement was not.
    """

    inputs: int
    peak: int
    forward: tuple[int, ...]
    backward: tuple[int, ...]
    peak_trace: str
    peak_index: int
    holders: tuple[Holder, ...]
    saved: tuple[Saved, ...]
    measured_forward: tuple[int | None, ...] = ()
    measured_backward: tuple[int | None, ...] = ()
    #: whether what was measured has the inputs in it, as an allocator's memory has
    measured_with_inputs: bool = False


@dataclass(frozen=True)
class StatementCost:
    """The estimate of a statement of a final trace: operations, bytes, and the time of a roofline (ns)."""

    flops: int
    nbytes: int
    ns: float | None


@dataclass(frozen=True)
class Measured:
    """The measured time of a statement: calls, the sum (ns) and the fastest call (ns)."""

    calls: int
    total_ns: int
    shortest_ns: int


@dataclass(frozen=True)
class CollectiveCall:
    """A collective of a final trace: its position and that of the statement that waits for it.

    A collective that is not asynchronous waits for itself. `nbytes` are those of its whole tensor.
    """

    trace: str
    position: int
    waited: int
    name: str
    group: str
    nbytes: int


@dataclass(frozen=True)
class Guard:
    """A fact that the entry depends on: its text, what is expected, and the path of the value."""

    fact: str
    expected: str
    source: str


@dataclass(frozen=True)
class Decision:
    """A question about data, its answer, and the line that asks."""

    question: str
    answer: str
    place: str


@dataclass(frozen=True)
class Size:
    """A size that the entry leaves open, or has fixed although it was chosen, and the facts about it."""

    source: str
    is_free: bool
    facts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One compiled program. Costs and measured times are by trace name, a value for each final statement."""

    number: int
    uses: int
    compile: CompileRecord | None
    guards: tuple[Guard, ...]
    decisions: tuple[Decision, ...]
    sizes: tuple[Size, ...]
    places: Sequence[Place]
    statements: Sequence[Statement]
    traces: tuple[Trace, ...]
    ledger: tuple[LedgerLine, ...]
    reasons: tuple[tuple[str, str, str], ...]
    notes: tuple[str, ...]
    absent: tuple[tuple[str, str, str], ...]
    memory: Memory | None
    costs: Mapping[str, tuple[StatementCost | None, ...]]
    measured: Mapping[str, tuple[Measured | None, ...]]
    collectives: tuple[CollectiveCall, ...]
    machine: str
    #: operations and bytes per second of the machine at most; empty if they are not known
    rates: tuple[float, ...]

    @property
    def compile_ns(self) -> int:
        """The time of the compile in nanoseconds; 0 if it was not noted."""
        return 0 if self.compile is None else sum(self.compile.stage_ns.values())


@dataclass(frozen=True, kw_only=True)
class Program:
    """A compiled object: its counters, settings, entries and failed compiles."""

    name: str
    place: str
    calls: int
    hits: int
    misses: int
    python_runs: int
    cache: str
    executors: tuple[str, ...]
    transforms: tuple[str, ...]
    entries: tuple[Entry, ...]
    failures: tuple[CompileRecord, ...] = ()


@dataclass(frozen=True)
class SourceFile:
    """A file of the user's program: its path, and its lines as highlighted HTML, from the line `first` on."""

    path: str
    name: str
    first: int
    lines: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Report:
    """All that a page shows. `facts` are texts about the process, such as versions, by name."""

    title: str
    facts: Mapping[str, str]
    programs: tuple[Program, ...]
    files: tuple[SourceFile, ...]
    notes: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
