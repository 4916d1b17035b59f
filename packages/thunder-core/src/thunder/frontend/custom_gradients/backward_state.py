"""State of an acquisition about the backwards that the program itself defines."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from thunder.base.errors import Location, UnsupportedProgram
from thunder.base.provenance import cell_content
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory, written_names
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.ir.proxies import AnyProxy, TensorProxy

#: interprets a backward at the present place of the program: the tensors that it reads, and cotangents →
#: gradients
RunInProgram: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]]


class BackwardState(SessionState):
    """What is checked of the backwards that were traced when the program ends."""

    def __init__(self, session: TracingSession) -> None:
        self.created: set[int] = set()  # ids of the functions, classes and cells that a backward created
        #: values of a subtrace that no other part may use: by id, the value and the function
        self.private: dict[int, tuple[Any, str]] = {}
        #: variables of inner functions that a backward reads: the cell, its content, the reader, and where
        self.captured: list[tuple[types.CellType, Any, str, list[Location]]] = []
        #: variables that are rebuilt when a backward runs: by id, the cell, its content, and where
        self.cells: dict[int, tuple[types.CellType, Any, list[Location]]] = {}
        #: objects that are rebuilt when a backward runs: by id, the object, its parts' ids, and where
        self.rebuilt: dict[int, tuple[Any, list[int], list[Location]]] = {}
        #: the ids of those of these objects that only the end of the program can build
        self.late: set[int] = set()
        #: the objects and variables that the backwards of a call share: by id, the value, and its number
        self.numbers: dict[int, tuple[Any, int]] = {}
        #: what they share, once a backward needs it: the program makes it first
        self.objects: AnyProxy | None = None
        #: the backwards that run as they are, as the program runs them where it computes gradients itself
        self.in_program: dict[Any, RunInProgram] = {}
        #: tensors that a backward reads from its ctx unsaved: the function, the tensors, a result, and where
        self.unsaved_reads: list[tuple[str, list[TensorProxy], TensorProxy, list[Location]]] = []

    def check(self, ending: Ending) -> None:
        """Refuse a program that changes, after a call, what the trace of the backward of that call has read.

        Where nothing that leaves the program can be differentiated, no backward runs later.
        """
        self._check_unsaved()
        if not ending.differentiable:  # the backwards that have run, have run
            return
        for cell, content, name, where in self.captured:
            if cell_content(cell) is not content:
                raise UnsupportedProgram(
                    f"a variable that {name} reads is assigned again after the call",
                    where=where,
                    hint="Use another variable.",
                )

    def _check_unsaved(self) -> None:
        """Refuse a write to a tensor that a backward reads, unsaved, from its ``ctx``.

        A tensor that is not saved for the backward is read as it is then.
        """
        calls = self._session.trace.bound_symbols if self.unsaved_reads else ()
        written = {name: i for i, b in enumerate(calls) for name in written_names(b)}  # the last time
        made: dict[int, int] = {}
        for i, bsym in enumerate(calls if written else ()):
            for p in bsym.flat_proxy_outs:
                made.setdefault(id(p), i)
        for name, kept, result, where in self.unsaved_reads:
            start = made.get(id(result), 0)
            later = {t for t, position in written.items() if position > start}
            if later and not later.isdisjoint(names_of_memory(calls, {p.name for p in kept})):
                raise UnsupportedProgram(
                    f"a tensor that the backward of {name} reads from its ctx, unsaved, is written after it",
                    where=where,
                    hint="Keep it with ctx.save_for_backward, or write to a clone.",
                )

    def shared(self) -> AnyProxy:
        """Return what the backwards of a call share."""
        if self.objects is None:
            self.objects = AnyProxy()
        return self.objects

    def number_of(self, value: Any) -> int:
        """Return the number of an object or a variable, by which backwards find what another rebuilt."""
        return self.numbers.setdefault(id(value), (value, len(self.numbers)))[1]
