"""Traces as numbered statements, of which equal ones of several stages are one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from thunder import TraceCtx
from thunder.core.prims import OpTags, clear_mutable_collection, comment, python_del, python_return
from thunder.core.proxies import Proxy, TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder_distributed.collectives import COLLECTIVES, wait
from thunder_distributed.exchanges import EXCHANGES
from thunder_report.model import Place, Stage, Statement, Trace
from thunder_report.sources import SourceFiles
from thunder_transforms.observing import OBSERVER

__all__ = ["StatementTable", "kind_of", "producers", "shown_statements", "statement_text"]

_RELEASES = frozenset({python_del.id, clear_mutable_collection.id})
_STRUCTURE = frozenset({python_return.id, comment.id, "prims.unpack_sequence", "prims.unpack_trivial"})
#: operators that communicate, or wait for one that does
_COMMUNICATION = frozenset({*COLLECTIVES, *EXCHANGES, wait.id})


def shown_statements(trace: TraceCtx) -> list[tuple[int, BoundSymbol]]:
    """Return the statements of a trace with their positions, without those that measure."""
    return [(i, bsym) for i, bsym in enumerate(trace.bound_symbols) if OBSERVER not in bsym.tags]


def statement_text(bsym: BoundSymbol) -> str:
    """Return a statement in one line, as the trace prints it, without the comments above and below it."""
    lines = [line.strip() for line in bsym.python(print_depth=1)]
    kept = [line.removesuffix("\\").rstrip() for line in lines if not line.startswith("#")]
    return " ".join(kept) or "; ".join(lines)


class StatementTable:
    """The statements and places of an entry, each with a number."""

    def __init__(self, files: SourceFiles) -> None:
        self.statements: list[Statement] = []
        self.places: list[Place] = []
        self._files = files
        self._numbers: dict[Statement, int] = {}
        self._place_numbers: dict[Place, int] = {}
        #: what has been added, which is kept alive so that no other call gets its identity
        self._seen: dict[int, tuple[BoundSymbol, int]] = {}

    def trace(self, name: str, traces: Sequence[TraceCtx]) -> Trace:
        """Return one function of an entry, stage by stage, without stages that changed nothing."""
        stages: list[Stage] = []
        for trace in traces:
            provenance = trace.get_provenance()
            numbers = tuple(self.add(bsym) for _, bsym in shown_statements(trace))
            if stages and numbers == stages[-1].statements:
                continue
            title = provenance.pss if provenance is not None else "Acquisition"
            stages.append(Stage(title, provenance.took_ns if provenance is not None else None, numbers))
        inputs = [
            f"{p.name}: {p.type_string()}" for p in traces[-1].args if isinstance(p, Proxy | TensorProxy)
        ]
        return Trace(name, tuple(inputs), tuple(stages))

    def add(self, bsym: BoundSymbol) -> int:
        """Return the number of a statement; its decomposition is added too."""
        seen = self._seen.get(id(bsym))
        if seen is not None:
            return seen[1]
        parts = tuple(map(self.add, bsym.subsymbols))
        executor = bsym.sym.executor
        statement = Statement(
            statement_text(bsym),
            str(bsym.sym.id),
            self.place_of(bsym),
            "" if executor is None else executor.name,
            kind_of(bsym),
            parts,
        )
        number = self._numbers.get(statement)
        if number is None:
            number = self._numbers[statement] = len(self.statements)
            self.statements.append(statement)
        self._seen[id(bsym)] = bsym, number
        return number

    def place_of(self, bsym: BoundSymbol) -> int:
        """Return the number of a statement's place or -1; of a region, that of its first part."""
        source = bsym.source
        if source is None:
            return next((p for p in map(self.place_of, bsym.subsymbols) if p >= 0), -1)
        inner = source.inner
        below = "" if inner is None else f"{Path(inner.file).name}:{inner.line}"
        return self.place(source.file, source.line, below, source.module)

    def place(self, file: str, line: int, inner: str, module: str) -> int:
        """Return the number of a place."""
        place = self._files.place(file, line, inner, module)
        number = self._place_numbers.get(place)
        if number is None:
            number = self._place_numbers[place] = len(self.places)
            self.places.append(place)
        return number


def kind_of(bsym: BoundSymbol) -> str:
    """Return the kind of a statement, see `Statement`."""
    if bsym.sym.is_fusion:
        return "region"
    if bsym.sym.id in _RELEASES:
        return "release"
    if bsym.sym.id in _STRUCTURE or not (bsym.flat_proxy_outs or bsym.flat_proxy_args):
        return "structure"
    if bsym.sym.id in _COMMUNICATION:
        return "collective"
    return "view" if OpTags.VIEW in bsym.tags else "call"


def producers(statements: Iterable[BoundSymbol]) -> Mapping[str, tuple[BoundSymbol, BoundSymbol]]:
    """Return for each value the statement that computes it, and the part of a region that does."""
    found: dict[str, tuple[BoundSymbol, BoundSymbol]] = {}

    def note(statement: BoundSymbol, part: BoundSymbol) -> None:
        arguments: set[Any] = {p.name for p in part.flat_proxy_args}
        for p in part.flat_proxy_outs:
            if p.name not in arguments:
                found.setdefault(p.name, (statement, part))

    for statement in statements:
        if statement.sym.is_fusion:
            for part in statement.subsymbols:
                note(statement, part)
        note(statement, statement)
    return found
