"""What a kept program needs rarely: traces and ledger, backwards for other cotangents, second derivatives.

They are derived again, from the program as it was acquired, by the stages that compiled it.
"""

from __future__ import annotations

import base64
import dataclasses
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, Final

from thunder.core.entries import (
    CacheEntry,
    Compiled,
    CompileData,
    Connected,
    InternalError,
    InvalidArgument,
    Modes,
    Node,
    ProgramEffects,
    Prologue,
    TraceCtx,
    Wiring,
    compiling,
    configured_pipeline,
    default_generators_kept,
)
from thunder.core.trace import dump, load
from thunder_store.fact_forms import module_with
from thunder_store.fact_reader import FactReader
from thunder_store.fact_writer import FactWriter
from thunder_store.reasons import NotUsed
from thunder_store.values import read_value

__all__ = ["Later", "text_of_acquired"]


def text_of_acquired(entry: CacheEntry, writer: FactWriter) -> dict[str, Any]:
    """Return the program as acquired, as text with a table of constants, and what the stages are told."""
    origin = entry.origin
    assert origin is not None, "an entry that was compiled has its origin"
    epilogue = entry.epilogue_traces[-1] if entry.epilogue_fn is not None else None
    prologue = entry.prologue_traces[0] if len(entry.prologue_traces) > 1 else None
    return {
        "prologue": None if prologue is None else _written(prologue, writer),
        "computation": _written(entry.computation_traces[0], writer),
        "epilogue": None if epilogue is None else _written(epilogue, writer),
        "effects": list(dataclasses.astuple(origin.effects)),
        "grad requests": sorted(origin.grad_requests),
    }


def _written(trace: TraceCtx, writer: FactWriter) -> list[Any]:
    printed = dump(trace)
    constants = {name: _constant(x, writer) for name, x in printed.constants.items()}
    return [base64.b85encode(zlib.compress(printed.text.encode())).decode(), constants]


def _constant(x: Any, writer: FactWriter) -> Any:
    if type(x) is dict and (module := module_with(x)) is not None:
        return ["globals", module]
    return writer.constant(x)


class Later:
    """The program of a kept entry, compiled again when something needs it."""

    def __init__(
        self,
        document: Mapping[str, Any],
        reader: FactReader,
        data: CompileData,
        prologue: Prologue,
        modes: Modes,
    ) -> None:
        self._effects = ProgramEffects(*map(bool, document["effects"]))
        self._grad_requests = frozenset(map(str, document["grad requests"]))
        self._data, self._final, self._modes, self._sizes = data, prologue, modes, reader.sizes
        overrides = reader.request.overrides
        self._forms_for = None if overrides is None else overrides.forms_for
        self._contributed = reader.request.contributed
        self._state = self._state_now()
        self._computation = _Text(document["computation"], reader)
        self._prologue, self._epilogue = (
            None if document[name] is None else _Text(document[name], reader)
            for name in ("prologue", "epilogue")
        )
        self._compiled: Compiled | None = None

    def compiled(self) -> Compiled:
        """Return the result of the stages for the program as it was acquired."""
        if self._compiled is None:
            self._compiled = self._compile()
        return self._compiled

    def _compile(self) -> Compiled:
        if self._state_now() != self._state:
            raise InvalidArgument(
                "the traces of a kept program are made by its transforms, whose state is another one now",
                hint="Look at them where the program is called, such as within no_sync().",
            )
        data, now = self._data, Modes.now()
        again = nullcontext() if self._sizes is None else self._sizes.again()
        self._modes.restore()
        try:
            with again, compiling(data), default_generators_kept():
                return configured_pipeline(data.transforms, data.compile_options, data.executors_list).run(
                    self._computation.trace(),
                    data.executors_list,
                    data.transforms,
                    data.compile_options,
                    check=data.debug_options.check_traces,
                    prologue=self._final if self._prologue is None else self._prologue.trace(),
                    epilogue=None if self._epilogue is None else self._epilogue.trace(),
                    grad_requests=self._grad_requests,
                    forms_for=self._forms_for,
                    effects=self._effects,
                )
        finally:
            now.restore()

    def _state_now(self) -> list[Any]:
        """Return the state that the transforms have now, on which what they make depends."""
        transforms = self._data.transforms
        states = [dict(read()) for read in self._contributed.values()] if transforms else []
        return [states, *(transform.program_identity() for transform in transforms)]

    # -- what an entry has ---------------------------------------------------------------------------------

    def list(self, name: str) -> Any:
        """Return a list of the entry, which is made when it is read."""
        return _LateList(lambda: _PARTS[name](self))

    def variant(self, position: int, wiring: Wiring, present: Any) -> Callable[..., Any]:
        """Return the backward of a node for other cotangents."""
        return self._node(position, wiring).variant(present)

    def derivative(self, position: int, wiring: Wiring, present: Any) -> Callable[..., Any]:
        """Return the backward of a node that can be differentiated."""
        return self._node(position, wiring).derivative(present)

    def _node(self, position: int, wiring: Wiring) -> Node:
        run = self.compiled().fn
        for trace in self.compiled().connected_traces:
            for bsym in trace.bound_symbols:
                if bsym.sym.id == "connected.forward":
                    run = bsym.sym.python_impl
        if not isinstance(run, Connected) or run.nodes[position].wiring != wiring:
            raise InternalError("a kept program is compiled to another one when its backward is needed")
        return run.nodes[position]


class _Text:
    """The text of a trace, with the constants of this process, that is read when it is needed."""

    def __init__(self, written: Sequence[Any], reader: FactReader) -> None:
        text, constants = written
        self._text = str(text)
        self._constants = {str(name): _read(j, reader) for name, j in constants.items()}

    def trace(self) -> TraceCtx:
        """Return the trace."""
        return load(unpacked(self._text), self._constants)


def _read(j: Any, reader: FactReader) -> Any:
    if type(j) is list and j[:1] == ["globals"]:
        module = sys.modules.get(j[1])
        if module is None:
            raise NotUsed(f"the module {j[1]} is not loaded")
        return vars(module)
    return read_value(j, reader.refer)


def unpacked(text: str) -> str:
    """Return a text that was compressed; raise NotUsed for another one."""
    try:
        return zlib.decompress(base64.b85decode(text)).decode()
    except (ValueError, zlib.error) as error:
        raise NotUsed(f"a text is damaged: {error}") from error


def _epilogues(later: Later) -> list[Any]:
    compiled = later.compiled()
    last = [] if compiled.epilogue is None else [compiled.epilogue]
    return [*compiled.connected_traces, *last]


#: the lists of an entry
_PARTS: Final[Mapping[str, Callable[[Later], Sequence[Any]]]] = {
    "computation_traces": lambda later: later.compiled().traces,
    "backward_traces": lambda later: later.compiled().backward_traces,
    "epilogue_traces": _epilogues,
    "ledger": lambda later: later.compiled().ledger,
    "backward_ledger": lambda later: later.compiled().backward_ledger,
    "notes": lambda later: later.compiled().notes,
}


class _LateList(Sequence[Any]):
    """A list that is made when it is first read."""

    def __init__(self, make: Callable[[], Sequence[Any]]) -> None:
        self._make = make
        self._items: Sequence[Any] | None = None

    def _all(self) -> Sequence[Any]:
        if self._items is None:
            self._items = self._make()
        return self._items

    def __len__(self) -> int:
        return len(self._all())

    def __getitem__(self, index: Any) -> Any:
        return self._all()[index]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._all())
