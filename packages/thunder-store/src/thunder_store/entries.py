"""A cache entry as a document of JSON, and back: facts, the programs that run, what a failing call does."""

from __future__ import annotations

import dataclasses
import sys
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import torch

from thunder.core.entries import (
    BelowAutograd,
    CacheEntry,
    CompileData,
    Connected,
    FailurePlan,
    GeneratorProxy,
    InputWrite,
    Interface,
    Modes,
    Node,
    NodeResult,
    Path,
    Prologue,
    ReplacedFunction,
    SymbolicNumber,
    TensorProxy,
    ThunderError,
    TraceCtx,
    TraceRequest,
    Wiring,
    ambient_fact,
    detached_trace,
    full_ambient_state,
    full_name,
    input_proxy,
    is_attribute_name,
    prologue_trace,
    size_facts,
    sizes_reader,
    with_parts,
)
from thunder_store.decisions import read_decisions, read_plan, write_decisions, write_plan
from thunder_store.descriptions import codes_of
from thunder_store.digests import codes_within
from thunder_store.edited.entry import EditedEntry
from thunder_store.fact_forms import module_with
from thunder_store.fact_reader import FactReader
from thunder_store.fact_writer import FactWriter
from thunder_store.later import Later, text_of_acquired
from thunder_store.reasons import NotKept, NotUsed
from thunder_store.regions import RegionWriter, function_at, read_regions, written_regions
from thunder_store.run_text import read_program, write_program
from thunder_store.set_order import hash_probe, orders_sets
from thunder_store.sizes import write_sizes
from thunder_store.values import read_value, write_value

__all__ = ["DAMAGE", "check_state", "read_entry", "read_inputs", "read_run", "write_entry"]

#: an entry that was read → its document
_documents: weakref.WeakKeyDictionary[CacheEntry, Mapping[str, Any]] = weakref.WeakKeyDictionary()
#: what a file has of a document beside its entry
_OF_FILE: Final = frozenset({"files", "settings"})


def write_entry(entry: CacheEntry, request: TraceRequest, data: CompileData) -> dict[str, Any]:
    """Return an entry as a document; raise NotKept with the reason for one that is not kept."""
    _refuse(entry)
    if entry in _documents:
        return {name: part for name, part in _documents[entry].items() if name not in _OF_FILE}
    assert entry.origin is not None, "an entry that was compiled has its origin"
    prologue = entry.prologue_traces[-1]
    if not isinstance(prologue, Prologue):
        raise NotKept("transforms", "the prologue")
    interface = prologue.interface
    writer = FactWriter(request.fn, request.contributed, request.overrides, interface.sizes)
    writer.written(interface.facts)
    _check_code(entry, writer)
    inputs = [_written_input(proxy, path, writer) for proxy, path in interface.inputs]
    regions = written_regions(entry)
    programs = _Programs(entry, writer, regions)
    document = {
        "ambient": write_value(_ambient_state(entry), writer.refer),
        "sizes": None if interface.sizes is None else write_sizes(interface.sizes),
        "free": [sorted(entry.free_sizes), sorted(entry.fixed_sizes)],
        "plan": write_plan(entry.plan),
        "inputs": inputs,
        "reached": [writer.path(path) for path in interface.reached],
        "programs": programs.written(),
        "regions": regions.rows,
        "failures": _written_failures(entry.failures),
        "decisions": write_decisions(entry.decisions),
        "written": sorted(entry.written),
        "replacements": [full_name(r.function) for r in request.replacements],
        "replaced": [[r.function, r.replacement, r.provided_by, r.calls] for r in entry.replaced],
        "writes": [[w.target, list(w.lines), w.reason] for w in entry.input_writes],
        "below": None if entry.below_autograd is None else dataclasses.astuple(entry.below_autograd),
        "acquired": text_of_acquired(entry, writer),
        "records": [write_value(t.program_record(_final(entry)), _no_object) for t in data.transforms],
        "hash": hash_probe() if writer.makes_sets or orders_sets(entry.origin.code) else None,
    }
    return {**document, "paths": writer.paths, "objects": writer.objects, "facts": writer.facts}


def _final(entry: CacheEntry) -> list[TraceCtx]:
    """Return the traces that run."""
    return [traces[-1] for traces in (entry.computation_traces, entry.backward_traces) if traces]


def _ambient_state(entry: CacheEntry) -> Any:
    """Return torch's modes when the entry was compiled, which is its first fact."""
    first = entry.guards[0]
    assert first.path.root_object is full_ambient_state, "the first fact is about torch's ambient state"
    return first.expected


def _refuse(entry: CacheEntry) -> None:
    if isinstance(entry, EditedEntry):
        raise NotKept("replaced", "the program was edited")
    if entry.is_for_one_call:
        raise NotKept("one call", "what it reads has changed while it was read")
    if entry.baked:
        raise NotKept("promises", f"sharp edges: {', '.join(entry.baked)}")
    if any(d.question == "opaque" for d in entry.decisions):
        raise NotKept("decisions", "the results of an opaque callable")


def _check_code(entry: CacheEntry, writer: FactWriter) -> None:
    """Raise NotKept for code that was read and that no object of the facts has."""
    assert entry.origin is not None, "an entry that was compiled has its origin"
    known = {id(c) for x in writer.described() for code in codes_of(x) for c in codes_within(code)}
    for code in entry.origin.code:
        if id(code) not in known:
            raise NotKept("code", f"{code.co_qualname}, {code.co_filename}:{code.co_firstlineno}")


# -- parts ---------------------------------------------------------------------------------------------------


def _written_input(proxy: Any, path: Path, writer: FactWriter) -> list[Any]:
    if isinstance(proxy, SymbolicNumber):
        return [proxy.name, writer.path(path), proxy.variable]
    if not isinstance(proxy, TensorProxy | GeneratorProxy):
        raise NotKept("sizes", f"{path.source} is a number")
    return [proxy.name, writer.path(path)]


def _written_failures(plan: FailurePlan) -> dict[str, Any]:
    if plan.host_generators:
        raise NotKept("object", "a generator of random numbers of Python or NumPy")
    if plan.decides_on_made:
        raise NotKept("decisions", "a value that differs from call to call")
    values = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan)}
    modes = {f.name: getattr(plan.modes, f.name) for f in dataclasses.fields(plan.modes)}
    del values["modes"], values["host_generators"]
    return {
        "modes": write_value(modes, _no_object),
        **{k: write_value(v, _no_object) for k, v in values.items()},
    }


def _read_failures(document: Mapping[str, Any]) -> FailurePlan:
    values = {name: read_value(j, _no_reference) for name, j in document.items()}
    return FailurePlan(**{**values, "modes": Modes(**values["modes"])}, host_generators=())


def _no_object(x: Any) -> Any:
    raise NotKept("object", f"an object of type {type(x).__qualname__}")


def _no_reference(j: Any) -> Any:
    raise NotUsed(f"{j!r} is not a value")


class _Programs:
    """The generated functions of an entry."""

    def __init__(self, entry: CacheEntry, writer: FactWriter, regions: RegionWriter) -> None:
        self.entry, self.writer, self.regions = entry, writer, regions
        self.forward: Any = None

    def written(self) -> dict[str, Any]:
        """Return the programs as a document."""
        entry, run, around = self.entry, self.entry.computation_fn, None
        if entry.epilogue_traces and entry.epilogue_traces[-1].name == "connected":
            connected: TraceCtx | None = entry.epilogue_traces[-1]
        else:
            connected = next((t for t in entry.epilogue_traces if t.name == "connected"), None)
        if connected is not None:
            if self.writer.sizes is not None:
                raise NotKept("sizes", "a part of the program is in torch's graph")
            around, run = run, _called_by(connected)
        self.forward = run
        connection = None
        if isinstance(run, Connected):
            connection = _written_connection(run)
            run = run.forward_fn
        epilogue = None
        if entry.epilogue_fn is not None:
            epilogue = self._program(entry.epilogue_fn, entry.epilogue_traces[-1])
        return {
            "forward": self._program(run, entry.computation_traces[-1]),
            "decorated": hasattr(run, "__wrapped__"),
            "connection": connection,
            "backward": None
            if entry.backward_fn is None or connection is None
            else self._program(entry.backward_fn, entry.backward_traces[-1]),
            "around": None if around is None or connected is None else self._program(around, connected),
            "epilogue": epilogue,
        }

    def _program(self, fn: Any, trace: TraceCtx) -> dict[str, Any]:
        return write_program(fn, with_parts(trace.running_symbols), self._refer)

    def _refer(self, x: Any) -> Any:
        if x is self.forward:
            return ["forward"]
        if id(x) in self.regions.forms:
            return self.regions.forms[id(x)]
        if type(x) is dict and (module := module_with(x)) is not None:
            return ["globals", module]
        return self.writer.value(x)


def _called_by(connected: TraceCtx) -> Any:
    return next(b.sym.python_impl for b in connected.bound_symbols if b.sym.id == "connected.forward")


def _written_connection(run: Connected) -> dict[str, Any]:
    nodes = [
        {f.name: list(getattr(node.wiring, f.name)) for f in dataclasses.fields(Wiring)} for node in run.nodes
    ]
    results = [write_value(node.results and [*map(tuple, node.results)], _no_object) for node in run.nodes]
    return {"nodes": nodes, "results": results, "bases": list(run.bases)}


# -- reading -------------------------------------------------------------------------------------------------


#: what a document of another form makes its reader raise
DAMAGE: Final = (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, RecursionError)


def read_entry(document: Any, request: TraceRequest, data: CompileData) -> CacheEntry:
    """Return the entry of a document for a call; raise NotUsed where it is not for the call, or damaged."""
    try:
        return _read_entry(document, request, data)
    except (*DAMAGE, ThunderError) as error:
        raise NotUsed(f"the text is damaged: {error!r}") from error


def _read_entry(document: Mapping[str, Any], request: TraceRequest, data: CompileData) -> CacheEntry:
    check_state(document)
    decisions = read_decisions(document["decisions"], request)
    with torch._C.DisableTorchFunction():
        reader = FactReader(document, request)
        facts = reader.read(document["facts"])
        _check_replacements(document, request, reader)
        inputs = read_inputs(document["inputs"], reader)
        free_sizes = frozenset(map(str, document["free"][0]))
        _check_wishes(document["inputs"], free_sizes, request, reader)
        reached = [reader.path(place) for place in document["reached"]]
        interface = Interface(facts, inputs, reached, sizes=reader.sizes)
        prologue = prologue_trace(interface, reader.roots, request.trusted)
    failures = _read_failures(document["failures"])
    later = Later(document["acquired"], reader, data, prologue, failures.modes)
    regions = read_regions(document["regions"], data)
    run, backward, epilogue = _read_programs(
        document["programs"], reader, later, regions, [proxy for proxy, _ in inputs]
    )
    prologue_fn = prologue.python_callable()
    if prologue_fn(*request.args, **request.kwargs) is None:
        raise NotUsed("a guard does not hold")
    entry = CacheEntry(
        prologue_fn=prologue_fn,
        prologue_traces=[prologue],
        computation_fn=run,
        computation_traces=later.list("computation_traces"),
        backward_fn=backward,
        backward_traces=later.list("backward_traces"),
        epilogue_fn=epilogue,
        epilogue_traces=later.list("epilogue_traces"),
        ledger=later.list("ledger"),
        backward_ledger=later.list("backward_ledger"),
        notes=later.list("notes"),
        input_writes=tuple(InputWrite(t, tuple(lines), reason) for t, lines, reason in document["writes"]),
        below_autograd=_read_below(document["below"]),
        guards=(ambient_fact(), *facts, *size_facts(reader.sizes, inputs)),
        failures=failures,
        can_be_undone=failures.can_be_undone,
        replaced=tuple(ReplacedFunction(*r) for r in document["replaced"]),
        decisions=decisions,
        plan=read_plan(document["plan"], request),
        free_sizes=free_sizes,
        fixed_sizes=frozenset(map(str, document["free"][1])),
        written=frozenset(document["written"]),
    )
    for transform, record in zip(data.transforms, document["records"], strict=True):
        transform.note_program(read_value(record, _no_reference))
    _documents[entry] = document
    return entry


def check_state(document: Mapping[str, Any]) -> None:
    """Raise NotUsed if torch's modes, or the order of sets on which the program depends, are others."""
    if document["hash"] not in (None, hash_probe()):
        raise NotUsed("the seed of hashes is another one")
    if read_value(document["ambient"], _no_reference) != full_ambient_state():
        raise NotUsed("torch's ambient state is another one")


def read_inputs(rows: Sequence[Any], reader: FactReader) -> list[Any]:
    """Return inputs of a program, each a proxy with its path."""
    return [_read_input(reader, *row) for row in rows]


def read_run(document: Mapping[str, Any], reader: FactReader, data: CompileData) -> tuple[Any, Any]:
    """Return the functions of a program without gradients, and of its epilogue."""
    regions, programs = read_regions(document["regions"], data), document["programs"]
    epilogue = None
    if programs["epilogue"] is not None:
        epilogue = _Reader(reader, None, ()).program(programs["epilogue"])
    return _Reader(reader, None, regions).program(programs["forward"]), epilogue


def _check_replacements(document: Mapping[str, Any], request: TraceRequest, reader: FactReader) -> None:
    """Raise NotUsed if a function is replaced that the program has called as it is, or the other way round.

    A plugin has replacements for the functions of modules that are loaded. A function of another module is
    none of those that the program called: it would be in a guard.
    """
    before = frozenset(document["replacements"])
    for replacement in request.replacements:
        if full_name(replacement.function) not in before and reader.has_found(replacement.function):
            raise NotUsed(f"{full_name(replacement.function)} is replaced now")
    now = {full_name(r.function) for r in request.replacements}
    for function, *_ in document["replaced"]:
        if function not in now:
            raise NotUsed(f"{function} is not replaced now")


def _check_wishes(
    rows: Sequence[Any], free_sizes: frozenset[str], request: TraceRequest, reader: FactReader
) -> None:
    """Raise NotUsed if a size of the call was asked to stay free that the program has as a number."""
    wishes = request.sizes
    if wishes is None:
        return
    for _, place, *_ in rows:
        value = reader.at(place)
        if isinstance(value, torch.Tensor) and not wishes.are_free(value, reader.path(place), free_sizes):
            raise NotUsed("a size was asked to stay free that is a number of the program")


def _read_below(below: Sequence[Any] | None) -> BelowAutograd | None:
    return None if below is None else BelowAutograd(below[0], tuple((r, n) for r, n in below[1]))


def _read_input(reader: FactReader, name: str, place: int, variable: int | None = None) -> Any:
    if variable is not None:
        number = reader.own_sizes().symbols[variable]
        if number.name != name:
            raise NotUsed(f"{name!r} is not the name of the size")
        return number, reader.path(place)
    path, value = reader.path(place), reader.at(place)
    if type(name) is not str or not is_attribute_name(name):
        raise NotUsed(f"{name!r} does not name an input")
    if not isinstance(value, torch.Tensor | torch.Generator):
        raise NotUsed(f"{path.source} is not a tensor")
    with detached_trace():
        proxy = input_proxy(value, path, None, None).replace(name=name)
        free = reader.free_at(path)
        if free is not None and isinstance(proxy, TensorProxy):
            offset = proxy.input_offset
            proxy = proxy.replace(shape=free.shape, strides=free.strides, input_offset=offset)
        return proxy, path


def _read_programs(
    document: Mapping[str, Any],
    reader: FactReader,
    later: Later,
    regions: Sequence[Any],
    inputs: Sequence[Any],
) -> tuple[Any, Any, Any]:
    forward = _Reader(reader, None, regions).program(document["forward"])
    run, backward = forward, None
    if document["connection"] is not None:
        if document["backward"] is not None:
            backward = _Reader(reader, None, regions).program(document["backward"])
        run = _read_connection(document["connection"], forward, backward, later, inputs)
    if document["around"] is not None:
        run = _Reader(reader, run, ()).program(document["around"])
    epilogue = None
    if document["epilogue"] is not None:
        epilogue = _Reader(reader, None, ()).program(document["epilogue"])
    return run, backward, epilogue


class _Reader:
    def __init__(self, reader: FactReader, forward: Any, regions: Sequence[Any]) -> None:
        self.reader, self.forward, self.regions = reader, forward, regions

    def program(self, document: Mapping[str, Any]) -> Any:
        return read_program(document, self.refer)

    def refer(self, j: Any) -> Any:
        if j == ["forward"] and self.forward is not None:
            return self.forward
        if type(j) is list and j[:1] == ["region"]:
            return function_at(self.regions, *j[1:])
        if type(j) is list and j[:1] == ["globals"]:
            module = sys.modules.get(j[1])
            if module is None:
                raise NotUsed(f"the module {j[1]} is not loaded")
            return vars(module)
        return read_value(j, self.reader.refer)


def _results(document: Mapping[str, Any]) -> list[Any]:
    return [read_value(j, _no_reference) for j in document["results"]]


def _read_connection(
    document: Mapping[str, Any], forward: Any, backward: Any, later: Later, inputs: Sequence[Any]
) -> Connected:
    wirings = [Wiring(**{k: tuple(v) for k, v in node.items()}) for node in document["nodes"]]
    only = backward if len(wirings) == 1 else None
    nodes = [
        Node(
            wiring,
            partial(later.variant, i, wiring),
            partial(later.derivative, i, wiring),
            only,
            None if results is None else [NodeResult(*result) for result in results],
        )
        for i, (wiring, results) in enumerate(zip(wirings, _results(document), strict=True))
    ]
    return Connected(forward, nodes, tuple(document["bases"]), sizes_reader(inputs))
