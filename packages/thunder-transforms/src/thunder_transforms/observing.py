"""Statements that watch a program: where they are added to its traces, and how they name what they watch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import takewhile

from thunder.core.errors import Location
from thunder.core.prims import (
    clear_mutable_collection,
    comment,
    python_del,
    python_return,
    sink,
    unpack_sequence,
    unpack_trivial,
)
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, TraceTag, from_trace
from thunder.executors.passes import del_last_used

__all__ = [
    "OBSERVER",
    "STRUCTURE",
    "Statement",
    "branch_of",
    "is_computing",
    "module_of",
    "observer",
    "statement_of",
    "with_observers",
]

#: the tag of statements that watch a program
OBSERVER = OpTags.register_tag("OBSERVER")

#: statements that run nothing: the structure of a trace
STRUCTURE = frozenset(
    symbol.id
    for symbol in (
        python_return,
        python_del,
        clear_mutable_collection,
        comment,
        unpack_sequence,
        unpack_trivial,
    )
)
_NOT_COMPUTED = STRUCTURE | {sink.id}
_RELEASES = frozenset({python_del.id, clear_mutable_collection.id})


@dataclass(frozen=True)
class Statement:
    """The description of a statement of a trace in reports.

    Attributes:
        branch: ``"inference"``, ``"forward"`` or ``"backward"``.
        operator: the name of the operator or of the fusion.
        text: the statement as the trace prints it.
        executor: the name of the executor that runs it, or None.
        locations: the user's lines; a fusion may have several, a call without a source line has none.
        module: the name of the module that calls it, or of the innermost around all calls of a fusion, or "".
    """

    branch: str
    operator: str
    text: str
    executor: str | None
    locations: tuple[Location, ...]
    module: str = ""

    @property
    def place(self) -> str:
        """The first of the user's lines, ``file:line``, or an empty text."""
        return f"{self.locations[0].file}:{self.locations[0].line}" if self.locations else ""


def statement_of(bsym: BoundSymbol, branch: str) -> Statement:
    """Return the description of a bound symbol."""
    executor = bsym.sym.executor
    return Statement(
        branch,
        bsym.sym.name,
        bsym.line.partition("  # ")[0],
        None if executor is None else executor.name,
        tuple(dict.fromkeys(_locations(bsym))),
        module_of(bsym),
    )


def module_of(bsym: BoundSymbol) -> str:
    """Return the name of the module that makes a call, or of the innermost around all calls of a fusion."""
    if bsym.source is not None:
        return bsym.source.module
    modules = [part.source.module.split(".") for part in bsym.subsymbols if part.source is not None]
    common = takewhile(lambda names: len(set(names)) == 1, zip(*modules, strict=False))
    return ".".join(names[0] for names in common)


def _locations(bsym: BoundSymbol) -> Iterable[Location]:
    """Yield the user's line of a call, or those of the calls of which it consists."""
    if bsym.locations:
        yield from bsym.locations
        return
    for part in bsym.subsymbols:
        yield from _locations(part)


def branch_of(trace: TraceCtx) -> str:
    """Return ``"forward"``, ``"backward"``, or ``"inference"`` for a program that is not differentiated."""
    if TraceTag.BACKWARD in trace.tags:
        return "backward"
    return "forward" if TraceTag.AUGMENTED_FORWARD in trace.tags else "inference"


def is_computing(bsym: BoundSymbol) -> bool:
    """Return whether a statement computes something, and is not part of a report."""
    return bsym.sym.id not in _NOT_COMPUTED and OBSERVER not in bsym.tags


def observer(name: str, fn: Callable[..., None]) -> Symbol:
    """Return the operator without results that calls `fn`; it is printed under `name`."""
    return Symbol(
        name=name,
        id=f"thunder_transforms.{name}",
        python_impl=fn,
        tags=frozenset({OpTags.DONT_DCE, OBSERVER}),
    )


def with_observers(
    trace: TraceCtx,
    provenance: str,
    *,
    before: Callable[[BoundSymbol], Iterable[BoundSymbol]] | None = None,
    after: Callable[[BoundSymbol], Iterable[BoundSymbol]] | None = None,
    after_releases: bool = False,
) -> TraceCtx:
    """Return a final trace with statements before and after each one that computes.

    `before(bsym)` and `after(bsym)` return these statements. With `after_releases` the latter come after the
    `del` lines that follow, so that a measured time includes the release of memory. The `del` lines are
    placed again, since the statements may read values.
    """
    new = from_trace(trace)
    waiting: list[BoundSymbol] = []
    for bsym in trace.bound_symbols:
        if not (after_releases and bsym.sym.id in _RELEASES):
            new.bound_symbols += waiting
            waiting = []
        if not is_computing(bsym):
            new.bound_symbols.append(bsym)
            continue
        new.bound_symbols += before(bsym) if before is not None else ()
        new.bound_symbols.append(bsym)
        waiting = list(after(bsym)) if after is not None else []
        if not after_releases:
            new.bound_symbols += waiting
            waiting = []
    if not after_releases:
        new = del_last_used(new, clear_mutable_collections=True)
    new.set_provenance(TraceProvenance(provenance))
    return new
