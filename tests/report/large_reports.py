"""Reports on programs that are larger than a test would compile."""

from __future__ import annotations

from thunder_report.model import (
    Entry,
    LedgerLine,
    Memory,
    Place,
    Program,
    Report,
    SourceFile,
    Stage,
    Statement,
    Trace,
)


def large_report(statements: int) -> Report:
    """Return a report on a program of so many statements in each of five stages."""
    rows = [
        Statement(
            f't{i} = torch.mul(t{i - 1}, {i})  # t{i}: "cpu f32[8, 8]"',
            "torch.mul",
            i % 500,
            "torch",
            "call",
            (),
        )
        for i in range(statements)
    ]
    stages = tuple(Stage(f"Stage {n}", 1000, tuple(range(n, statements))) for n in range(5))
    ledger = tuple(
        LedgerLine("forward", "torch.mul", (f"t{i}",), "torch", "operator", "", (), (), i % 500, {}, 0, 512)
        for i in range(statements)
    )
    count = len(stages[-1].statements)
    alive = tuple(512 * (i % 8) for i in range(count))
    memory = Memory(0, 512 * 7, alive, (), "forward", 7, (), ())
    entry = Entry(
        number=1, uses=1, compile=None, guards=(), decisions=(), sizes=(), statements=rows, ledger=ledger,
        places=[Place(0, 1 + i, "", f"layers.{i}") for i in range(500)],
        traces=(Trace("forward", ("x: cpu f32[8, 8]",), stages),), reasons=(), notes=(), absent=(),
        memory=memory,
        costs={"forward": (None,) * count}, measured={}, collectives=(), machine="", rates=(),
    )  # fmt: skip
    program = Program(
        name="large", place="large.py:1", calls=1, hits=0, misses=1, python_runs=0, cache="automatic",
        executors=("torch",), transforms=(), entries=(entry,),
    )  # fmt: skip
    file = SourceFile("large.py", "large.py", 1, tuple(f"line {i}" for i in range(500)))
    return Report(title="large", facts={"device": "CPU"}, programs=(program,), files=(file,))
