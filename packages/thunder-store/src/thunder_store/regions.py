"""Fusion regions: each distinct one is kept as the text of a trace, and compiled again by its executor.

What a compiler of regions generates is of its process, and executors that keep code on disk find it there by
the structure of the region, which its text determines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from thunder.core.entries import (
    BoundSymbol,
    CacheEntry,
    CompileData,
    ExpectedStrides,
    FusionExecutor,
    Region,
    Symbol,
    TensorProxy,
    TraceCtx,
    after_forward,
    copied_to_inputs,
    form_of,
    prims,
    structural_key,
    tracectx,
    with_copied,
)
from thunder.core.trace import dump, load
from thunder_store.reasons import NotKept, NotUsed

__all__ = ["RegionWriter", "function_at", "read_regions", "written_regions"]


class RegionWriter:
    """The distinct regions of an entry, and the functions that compute them."""

    def __init__(self) -> None:
        self.rows: list[list[Any]] = []
        #: id of a region's function, or of its form that writes to inputs → how it is found
        self.forms: dict[int, list[Any]] = {}
        self._known: dict[Any, int] = {}
        #: id of the region of which functions are forms → its position
        self._positions: dict[int, int] = {}

    def add(self, traces: Sequence[TraceCtx], forward: TraceCtx | None) -> None:
        """Write the regions of the last of these traces; with ``forward`` they are those of its backward.

        Raises NotKept for one of an executor that makes calls of regions itself, and for one with a constant
        that has no text.
        """
        fused = next((i for i, t in enumerate(traces) if any(map(_is_fusion, t.bound_symbols))), None)
        if fused is None:
            return
        if not fused:
            raise NotKept("region", "there is no trace before fusion")
        copied = copied_to_inputs(traces[fused - 1])
        with after_forward(forward):
            strides = ExpectedStrides(traces[fused - 1])
            for call in filter(_is_fusion, traces[fused].bound_symbols):
                self._add(call, copied, strides)
        for symbol in (b.sym for b in traces[-1].bound_symbols if b.sym.is_fusion):
            self._add_form(symbol)

    def _add_form(self, symbol: Symbol) -> None:
        """Note how a function is found that writes to inputs of its region, or computes in their memory."""
        function, form = symbol.python_impl, form_of(symbol.python_impl)
        if id(function) in self.forms or form is None or id(form.region) not in self._positions:
            return
        positions = sorted(form.own), sorted(form.saved)
        how = form.is_in_place, form.keeps_overwritten
        self.forms[id(function)] = ["region", self._positions[id(form.region)], *positions, *how]

    def _add(self, call: BoundSymbol, copied: Mapping[str, TensorProxy], strides: ExpectedStrides) -> None:
        executor, function = call.sym.executor, call.sym.python_impl
        is_general = isinstance(executor, FusionExecutor) and type(executor).fuse is FusionExecutor.fuse
        if not is_general or not all(isinstance(p, TensorProxy) for p in call.args):
            raise NotKept("region", f"{call.sym.name} of the executor {executor.name}")
        inputs = tuple(p.replace(strides=strides.of(p)) for p in call.args)
        region = Region(tuple(call.subsymbols), inputs, tuple(call.output))
        form = form_of(function)
        if form is not None and form.region.copied:
            region = with_copied(region, copied)
            if len(region.inputs) != len(inputs):
                raise NotKept("region", f"{call.sym.name} writes to what it does not take")
        region = replace(region, reused=() if form is None else form.region.reused)
        key = structural_key(region, requires_grad=True)
        if key is None:
            raise NotKept("region", f"{call.sym.name} has a constant without a text")
        known = executor.name, key, tuple(p.strides for p in inputs)
        position = self._known.get(known)
        if position is None:
            printed = dump(_as_trace(region))
            if printed.constants:
                raise NotKept("region", f"{call.sym.name} has the constants {', '.join(printed.constants)}")
            position = self._known[known] = len(self.rows)
            pairs = ([list(pair) for pair in found] for found in (region.copied, region.reused))
            self.rows.append([executor.name, printed.text, *pairs])
        self.forms[id(function)] = ["region", position]
        if form is not None:
            self._positions[id(form.region)] = position


def _is_fusion(bsym: BoundSymbol) -> bool:
    return bool(bsym.sym.is_fusion)


def _as_trace(region: Region) -> TraceCtx:
    trace = TraceCtx(name="region")
    trace.args = list(region.inputs)
    trace.names = {p.name for b in region.bsyms for p in (*b.flat_proxy_args, *b.flat_proxy_outs)}
    with tracectx(trace):
        trace.bound_symbols += [*region.bsyms, prims.python_return.bind(list(region.outputs), output=None)]
    return trace


def written_regions(entry: CacheEntry) -> RegionWriter:
    """Return the regions of an entry."""
    writer, forward = RegionWriter(), entry.computation_traces
    writer.add(forward, None)
    writer.add(entry.backward_traces, forward[-1])
    return writer


def function_at(
    functions: Sequence[Any],
    position: int,
    own: Sequence[int] = (),
    saved: Sequence[int] = (),
    is_in_place: bool = False,
    keeps_overwritten: bool = False,
) -> Any:
    """Return the function of a region, or its form that writes to inputs or computes in memory of theirs."""
    function, form = functions[position], form_of(functions[position])
    if own or saved:
        if form is None or not {*form.targets}.issuperset((*own, *saved)):
            raise NotUsed("a region does not compute in the memory of this input")
        function = form.reusing(frozenset(own), frozenset(saved))
    if not is_in_place:
        return function
    if form is None or not form.region.copied:
        raise NotUsed("a region has no form that writes to inputs")
    return function.in_place.kernel(keeps_overwritten=bool(keeps_overwritten))


def read_regions(rows: Sequence[Any], data: CompileData) -> list[Callable[..., Any]]:
    """Return the functions of kept regions; raise NotUsed for one that its executor does not compile."""
    executors: Mapping[str, Any] = {executor.name: executor for executor in data.executors_list}
    functions = []
    for name, text, *pairs in rows:
        executor = executors.get(name)
        if not isinstance(executor, FusionExecutor):
            raise NotUsed(f"the executor {name} compiles no regions")
        copied, reused = ([(int(i), int(j)) for i, j in found] for found in pairs)
        function = executor.compile_alone(load(str(text)), copied, reused)
        if not callable(function):
            raise NotUsed(f"the executor {name} refuses a region: {function}")
        functions.append(function)
    return functions
