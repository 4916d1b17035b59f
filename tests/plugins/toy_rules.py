"""A stranger's package for the library `toy_library`: it imports public names of thunder alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

import thunder
from plugins import toy_library as toy
from plugins.toy_library import Grid
from thunder.core import prims
from thunder.core.session import (
    COMPUTES,
    READS_SURROUNDINGS,
    WRITES,
    EpilogueBuilder,
    Handler,
    LookasideTable,
    Path,
    SessionRules,
    SessionState,
    TracingSession,
    UnknownValue,
    Write,
    moment,
)
from thunder.plugins import hookimpl

THUNDER_PLUGIN_API = (1, 3)

TABLE = LookasideTable(COMPUTES)


#: in place of what nothing that has no rule may look into
MEMORY = UnknownValue("the memory of a grid", "whose elements are those of a tensor", "Read its elements.")


class Grids(SessionState):
    """The tensors that the grids of the program are backed by."""

    def __init__(self, session: TracingSession) -> None:
        self.tensors: dict[int, tuple[Grid, Any]] = {}  # by the id of the grid, which is held

    def new(self, tensor: Any) -> Grid:
        """Return a grid that the program sees, whose elements are those of a tensor."""
        grid = object.__new__(Grid)
        grid.__dict__["_memory"] = MEMORY
        self.tensors[id(grid)] = grid, tensor
        return grid

    def tensor(self, grid: Grid) -> Any:
        """Return the tensor of a grid."""
        if id(grid) not in self.tensors:
            raise thunder.UnsupportedProgram("the program copies a grid")
        return self.tensors[id(grid)][1]

    def end(self) -> None:
        self.tensors.clear()


class Scale(SessionState):
    """The scale that the program has set."""

    def __init__(self, session: TracingSession) -> None:
        self.value: float | None = None
        self.moment = 0

    def writes(self) -> Iterator[Write]:
        if self.value is not None:
            yield Write(
                name="the scale of toy",
                emit=self._emit,
                state=self.value,
                moment=self.moment,
                read_anywhere=True,  # code that runs as it is would read the scale before the call
            )

    def _emit(self, builder: EpilogueBuilder) -> None:
        builder.emit(builder.call(toy.set_scale, (self.value,)))


# -- what a grid is to the program ---------------------------------------------------------------------------


def adopt(session: TracingSession, raw: Grid, path: Path) -> Grid:
    """Return the grid that the program has in place of the user's, backed by a tensor that is an input."""
    session.note(prims.check_type, path, Grid)
    grid = session.state(Grids).new(session.adopt(toy.to_tensor(raw), path.step("called", toy.to_tensor)))
    session.track(raw, path, grid)
    return grid


def load(session: TracingSession, grid: Grid, name: str) -> Any:
    """Return an attribute: the elements are those of the tensor, others are read and guarded as usual."""
    if name == "elements":
        return session.call(torch.Tensor.tolist, (session.state(Grids).tensor(grid),), {})
    return session.load_plain(grid, name)


def made_by(session: TracingSession, grid: Grid) -> tuple[Callable[..., Any], tuple[Any, ...]] | None:
    """Return how a grid that the program has made is made in each call."""
    if session.entry_of(grid) is not None:
        return None
    return toy.from_tensor, (session.state(Grids).tensor(grid), session.load_attr(grid, "unit"))


# -- functions -----------------------------------------------------------------------------------------------


def _new(session: TracingSession, tensor: Any, unit: Any) -> Grid:
    grid = session.state(Grids).new(tensor)
    session.store_attr(grid, "unit", unit)
    return grid


@TABLE.with_parameters(toy.ones)
def ones(session: TracingSession, n: Any, unit: Any = "") -> Grid:
    scale = session.call(toy.get_scale, (), {})
    return _new(session, session.call(torch.full, ((n,), scale), {"dtype": torch.float64}), unit)


@TABLE.with_parameters(toy.total)
def total(session: TracingSession, grid: Grid) -> Any:
    return session.call(torch.Tensor.item, (session.call(torch.sum, (_tensor(session, grid),), {}),), {})


@TABLE.with_parameters(toy.to_tensor)
def to_tensor(session: TracingSession, grid: Grid) -> Any:
    return session.call(torch.clone, (_tensor(session, grid),), {})


@TABLE.with_parameters(toy.from_tensor)
def from_tensor(session: TracingSession, tensor: Any, unit: Any = "") -> Grid:
    return _new(session, session.call(torch.Tensor.to, (tensor, torch.float64), {"copy": True}), unit)


@TABLE.with_parameters(Grid.__len__)
def length(session: TracingSession, grid: Grid) -> Any:
    return session.call(len, (_tensor(session, grid),), {})


def _tensor(session: TracingSession, grid: Grid) -> Any:
    return session.state(Grids).tensor(grid)


def _elementwise(method: Any, fn: Any) -> None:
    @TABLE.with_parameters(method)
    def rule(session: TracingSession, a: Grid, b: Any) -> Grid:
        unit, operand = session.load_attr(a, "unit"), b
        if session.class_of(b) is Grid:
            operand = _tensor(session, b)
            if session.call(len, (a,), {}) != session.call(len, (b,), {}):
                raise ValueError("grids of several lengths")
            if unit != session.load_attr(b, "unit"):
                raise ValueError(f"a grid in {unit!r} and one in {session.load_attr(b, 'unit')!r}")
        return _new(session, session.call(fn, (_tensor(session, a), operand), {}), unit)


_elementwise(Grid.__add__, torch.add)
_elementwise(Grid.__mul__, torch.mul)


@TABLE.lookaside(toy.get_scale, effect=READS_SURROUNDINGS)
def get_scale(session: TracingSession, args: Any, kwargs: Any) -> Any:
    written = session.state(Scale).value
    if written is not None:
        return written
    session.note_state(toy.get_scale, "the scale of toy", toy.get_scale())
    return toy.get_scale()


@TABLE.lookaside(toy.set_scale, effect=WRITES)
def set_scale(session: TracingSession, args: Any, kwargs: Any) -> None:
    session.note_write()
    state = session.state(Scale)
    (state.value,), state.moment = args, moment()


@hookimpl
def thunder_session_rules() -> list[SessionRules]:
    """Return the rules of the library."""
    handlers = {Grid: Handler(load=load, adopt=adopt, made_by=made_by)}
    return [SessionRules("toy", lookasides=TABLE, handlers=handlers, kinds=(Scale,))]
