"""Acquisition: one call of a function becomes a trace, its facts and its side effects."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.devices import Device
from thunder.base.errors import OperatorError, RaisedByProgram, ThunderError, UnsupportedProgram
from thunder.base.langctx import LanguageContext, using_language
from thunder.base.provenance import Path, own_name, root
from thunder.base.tags import OpTags
from thunder.frontend import ambient_state
from thunder.frontend.custom_gradients import backward_reads
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.default_lookasides import default_lookasides
from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder, is_simple
from thunder.frontend.facts import Fact
from thunder.frontend.guards import Trusted, ambient_fact, prologue_trace
from thunder.frontend.lookasides import patches, rng_generators, weakrefs
from thunder.frontend.lookasides.grad_requests import GradRequests, returned_leaves
from thunder.frontend.lookasides.mode_regions import InferenceModes
from thunder.frontend.lookasides.tensor_hints import TensorHints
from thunder.frontend.objects.input_overlap import overlapping_groups
from thunder.frontend.objects.object_table import ObjectTable
from thunder.frontend.objects.shadow_copies import Shadow
from thunder.frontend.program_recorder import ProgramRecorder
from thunder.frontend.raised_errors import carries_values, name_tensors
from thunder.frontend.session import TracingSession
from thunder.frontend.source_locations import locations_of
from thunder.frontend.tracing_policy import Tracer
from thunder.interpreter import Machine, jitting
from thunder.ir.aliasing import InputAlias
from thunder.ir.effects import has_effect
from thunder.ir.proxies import GeneratorProxy, TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx, TraceProvenance, tracectx
from thunder.ops import prims
from thunder.ops.data_errors import may_raise_on_data
from thunder.wrappers.overrides import Overrides

#: what a computation is given, and where it is found
Input = tuple[TensorProxy | GeneratorProxy, Path]


@dataclass(frozen=True, kw_only=True, eq=False)
class Acquisition:
    """The traces of one call, and the facts that they depend on.

    ``epilogue`` is None where the computation's value is the result. ``interpreted`` counts bytecode
    instructions.
    """

    prologue: TraceCtx
    computation: TraceCtx
    epilogue: TraceCtx | None
    facts: tuple[Fact, ...]
    interpreted: int
    log: list[Any]
    #: whether the program writes to objects of the user's
    writes: bool
    #: whether a handler of the program would see an error of an operator
    handles_errors: bool
    #: whether the program calls what exists in traces only
    calls_symbols: bool


def acquire(
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    language: LanguageContext,
    sharp_edge: Callable[[ThunderError], None],
    disable_grad: bool = False,
    trusted: Trusted = "nothing",
    record_log: bool = False,
    contributed: Mapping[str, Callable[[], Mapping[str, Any]]] | None = None,
    overrides: Overrides | None = None,
    device: Device | None = None,
) -> Acquisition:
    """Trace ``fn(*args, **kwargs)`` without running an operation or changing an object.

    ``contributed`` are functions of plugins and transforms, by name, whose results are guarded.
    ``overrides`` are tensors that the program reads in place of those of ``fn``, a module. With ``device``,
    all tensors from outside are taken to be on it, wherever they are.

    Raises RaisedByProgram with what the program raises; UnsupportedProgram or a subclass, with the user's
    line, if it has no trace.
    """
    ambient_state.refuse_foreign_modes()
    _refuse_generators(fn)
    trace, inputs = TraceCtx(fn=fn), list[Input]()
    objects = _object_table(trace, inputs, disable_grad, device)
    objects.apply_overrides(overrides)
    lookasides = default_lookasides()
    session = Tracer(trace, objects, language, sharp_edge, lookasides=lookasides, assumed_device=device)
    machine = Machine(session, natives=lookasides.class_methods, record_history=record_log)
    try:
        with ambient_state.restored(), tracectx(trace), using_language(language), jitting():
            result = _recorded(session, machine, fn, args, kwargs)
            trace.grad_enabled |= _needs_grad_mode(trace, inputs, session.modes.grad) and not disable_grad
            _refuse_grad_in_inference_mode(session)
            finalizer = _TraceFinalizer(session, inputs, fn)
            computation, epilogue, reached = finalizer.run(result)
        with torch._C.DisableTorchFunction():
            roots = {"args": args, "kwargs": kwargs}
            classes = {type(path.fetch(roots)) for _, path in _tensors(inputs)}
            patches.note_special_methods(session, classes)
            _note_last_facts(trace, objects, inputs, roots, contributed or {})
            prologue = prologue_trace(objects.facts, finalizer.inputs, reached, roots, trusted)
    finally:
        session.forget()
    return Acquisition(
        prologue=prologue,
        computation=computation,
        epilogue=epilogue,
        facts=(ambient_fact(), *objects.facts),
        interpreted=machine.instructions,
        log=machine.history,
        writes=finalizer.writes,
        handles_errors=session.handles_errors,
        calls_symbols=session.calls_symbols,
    )


def _object_table(
    trace: TraceCtx, inputs: list[Input], disable_grad: bool, device: Device | None
) -> ObjectTable:
    """An object table that appends each tensor and generator that it finds to ``inputs``."""
    tracks_grad = torch.is_grad_enabled() and not disable_grad

    def make_input(t: torch.Tensor | torch.Generator, path: Path) -> TensorProxy | GeneratorProxy:
        proxy = _input_proxy(t, device)
        trace.grad_enabled |= tracks_grad and requires_grad(proxy)
        inputs.append((proxy, path))
        return proxy

    return ObjectTable(make_input)


def _needs_grad_mode(trace: TraceCtx, inputs: list[Input], before: bool) -> bool:
    """Return whether the program changes the grad mode, or enables it where it matters."""
    if torch.is_grad_enabled() != before:
        return True
    regions_on = any(b.sym is prims.set_grad_enabled and b.args[0] for b in trace.bound_symbols)
    return regions_on and any(requires_grad(proxy) for proxy, _ in inputs)


def _refuse_grad_in_inference_mode(session: TracingSession) -> None:
    """Refuse ``enable_grad`` in inference mode, where torch does not differentiate."""
    if session.state(InferenceModes).had_grad and session.trace.grad_enabled:
        raise UnsupportedProgram(
            "the program enables gradients inside of inference mode",
            hint="Leave inference mode before, or use torch.no_grad in its place.",
        )


def _refuse_hidden(session: TracingSession) -> None:
    """Refuse the use of a custom gradient's private values outside of it."""
    for bsym in session.trace.bound_symbols if session.state(BackwardState).private else ():
        for p in bsym.flat_proxy_args:
            if id(p) in session.state(BackwardState).private:
                part = session.state(BackwardState).private[id(p)][1]
                raise UnsupportedProgram(
                    f"a tensor that {part} computed in its forward or backward is used outside of it",
                    found={"tensor": f'"{p.type_string()}"'},
                    where=bsym.locations,
                    hint="Return it from the forward.",
                )


def _raised(session: TracingSession, error: BaseException) -> RaisedByProgram:
    name_tensors(error)
    written, calls = _written(session), session.trace.bound_symbols
    may_raise_earlier = any(map(may_raise_on_data, calls))
    noticed = may_raise_earlier or written or any(map(has_effect, calls)) or session.machine.has_generators
    noticed = noticed or carries_values(error)
    return RaisedByProgram(
        error,
        written,
        runs_again=not session.calls_symbols and bool(noticed or ambient_state.Modes.now() != session.modes),
        handles=may_raise_earlier and session.handles_errors,
    )


def _written(session: TracingSession) -> list[str]:
    """Return what the program has written, by name."""
    objects = session.objects
    written = [shadow.path.source for shadow in objects.written_shadows()]
    written += [f"{entry.path.source}.{name}" for entry in objects.written_entries() for name in entry.writes]
    written += [f"{o.path.source}.{name}" for o in objects.written_overlays() for name in o.writes]
    written += [name for _, name in session.variables.global_writes] + [
        path.source for path, _ in session.variables.cell_writes.values()
    ]
    return written


def _input_proxy(t: torch.Tensor | torch.Generator, device: Device | None) -> TensorProxy | GeneratorProxy:
    """Return the proxy of an input, with all metadata that a program can read."""
    if isinstance(t, torch.Generator):
        return GeneratorProxy(device=rng_generators.device_of(t, device))
    with torch._C.DisableTorchFunction():
        return TensorProxy(
            like=t,
            device=device,
            strides=t.stride(),
            input_offset=t.storage_offset(),
            declared_leaf=t.is_leaf,
        )


def _note_last_facts(
    trace: TraceCtx,
    objects: ObjectTable,
    inputs: list[Input],
    roots: dict[str, Any],
    contributed: Mapping[str, Callable[[], Mapping[str, Any]]],
) -> None:
    """Add the facts about the call as a whole."""
    _note_shared_memory(trace, objects, _tensors(inputs), roots)
    objects.guard_distinctness()
    _note_contributed(objects, contributed)
    weakrefs.hold_weakly(objects)


def _note_contributed(
    objects: ObjectTable, contributed: Mapping[str, Callable[[], Mapping[str, Any]]]
) -> None:
    for name, read_state in contributed.items():
        # a copy: the plugin may keep the mapping and change it
        objects.note("state", objects.object_root(read_state, name), dict(read_state()))


def _tensors(inputs: list[Input]) -> list[tuple[TensorProxy, Path]]:
    return [(proxy, path) for proxy, path in inputs if isinstance(proxy, TensorProxy)]


def _note_shared_memory(
    trace: TraceCtx, objects: ObjectTable, inputs: list[tuple[TensorProxy, Path]], roots: dict[str, Any]
) -> None:
    """Guard that all tensors are different objects, and their overlap if memory is written."""
    if len(inputs) < 2:
        return
    first, *others = (path for _, path in inputs)
    objects.note("distinct", first, True, others=tuple(others))
    if not any(has_tags(b, {OpTags.IN_PLACE}) for b in trace.bound_symbols):
        return
    tensors = [path.fetch(roots) for _, path in inputs]
    groups = overlapping_groups(*tensors)
    objects.note("overlap", first, groups, others=tuple(others))
    trace.input_aliases = tuple(
        tuple(InputAlias(inputs[i][0], tensors[i].stride(), offset) for i, offset in group)
        for group in groups
    )


def _refuse_generators(fn: Callable[..., Any]) -> None:
    code = fn.forward if isinstance(fn, torch.nn.Module) else fn
    if (
        inspect.isgeneratorfunction(code)
        or inspect.iscoroutinefunction(code)
        or inspect.isasyncgenfunction(code)
    ):
        raise UnsupportedProgram(
            f"{own_name(fn, '__qualname__') or type(fn).__qualname__} is a generator function or async def",
            hint="Return a list, or compile the function that it calls.",
        )


def _recorded(
    session: TracingSession,
    machine: Machine,
    fn: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """Return the value of the call, recorded into the trace; errors name the program's lines."""
    try:
        with tracectx(session.trace, recorder=ProgramRecorder(session)):
            return machine.call(*_rooted_call(session, fn, args, kwargs))
    except OperatorError as error:  # torch raises here too
        raise _raised(session, error.add_locations(locations_of(error))) from None
    except ThunderError as error:
        raise error.add_locations(locations_of(error)) from error.__cause__
    except KeyboardInterrupt:  # the user's, who wants an end
        raise
    except BaseException as error:  # the program's own
        raise _raised(session, error) from None


def _rooted_call(
    session: TracingSession, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The call with its function and arguments adopted, each under its root."""
    objects = session.objects
    name = "self" if isinstance(fn, torch.nn.Module) else own_name(fn, "__name__") or "fn"
    function = objects.adopt(fn, objects.object_root(fn, name))
    args_path, kwargs_path = root("args"), root("kwargs")
    objects.note("len", args_path, len(args))
    objects.note("keys", kwargs_path, tuple(kwargs))
    values = tuple(objects.adopt(a, args_path.step("index", i)) for i, a in enumerate(args))
    keywords = {k: objects.adopt(v, kwargs_path.step("key", k)) for k, v in kwargs.items()}
    return function, values, keywords


class _TraceFinalizer:
    """The end of an acquisition: names of values, the computation's results, the epilogue."""

    def __init__(self, session: TracingSession, inputs: list[Input], fn: Callable[..., Any]) -> None:
        self.session, self.trace = session, session.trace
        self.parameters = _parameter_names(fn)
        self.inputs = sorted(inputs, key=lambda item: _order(item[1]))
        self.writes = False

    def run(self, result: Any) -> tuple[TraceCtx, TraceCtx | None, list[Path]]:
        """Return the computation, its epilogue or None, and the paths of what that needs."""
        self.name_values()
        objects, session = self.session.objects, self.session
        objects.refuse_shared_attributes()
        self.trace.args = [proxy for proxy, _ in self.inputs]
        written = list(objects.written_shadows())
        overlays, entries = list(objects.written_overlays()), list(objects.written_entries())
        seen: set[int] = set()
        simple = is_simple(result, seen, objects)
        autocast = ambient_state.Modes.now().autocast_after(session.modes)
        writes = (
            written,
            overlays,
            entries,
            session.variables.global_writes,
            session.variables.cell_writes,
            autocast,
        )
        self.writes = any(writes)
        is_annotated = session.state(GradRequests).requests or session.state(TensorHints)
        if simple and not self.writes and not is_annotated:
            backward_reads.refuse_changed(session, seen)
            prims.python_return(*([result] if result is not None else [None]))
            return self._computation(), None, []
        builder = EpilogueBuilder(session)
        for value in _built_values(session, written, result):
            builder.count(value)
        backward_reads.refuse_changed(session, builder.uses)
        for shadow in written:
            builder.write_shadow(shadow)
        for overlay in overlays:
            builder.write_items(overlay)
        for entry in entries:
            builder.write_entry(entry)
        for (_, name), (namespace, value) in session.variables.global_writes.items():
            builder.write_global(namespace, name, value)
        for path, value in session.variables.cell_writes.values():
            builder.write_cell(path, value)
        for device, enabled, dtype in autocast:
            builder.emit(
                f"torch.set_autocast_enabled({device!r}, {enabled})",
                f"torch.set_autocast_dtype({device!r}, {dtype})",
            )
        expression = builder.expression(result)
        for leaf in returned_leaves(session, self.trace.args, builder.tensors.values()):
            builder.emit(f"{leaf.name}.requires_grad_()")
        for tensor, name, value in session.state(TensorHints).of(list(builder.tensors.values())):
            builder.emit(f"{tensor.name}.{name} = {builder.expression(value)}")
        builder.emit(f"return {expression}")
        prims.python_return(tuple(builder.tensors.values()))
        reached = list(builder.reached.values())
        epilogue = _epilogue(builder.statements, [*builder.tensors, *(name for name, _, _ in reached)])
        return self._computation(), epilogue, [path for _, path, _ in reached]

    def _computation(self) -> TraceCtx:
        _refuse_hidden(self.session)
        if not self.trace.grad_enabled:  # where nothing requires grad, regions of grad mode mean nothing
            self.trace.bound_symbols = [
                b for b in self.trace.bound_symbols if b.sym is not prims.set_grad_enabled
            ]
        self.trace.set_provenance(TraceProvenance("Acquisition"))
        return self.trace

    def name_values(self) -> None:
        """Give every value its final name, in the order of the program.

        The same program always gets the same names.
        """
        trace = self.trace
        trace.names.clear()
        trace._counter = 0
        named: set[int] = set()
        for proxy, path in self.inputs:
            named.add(id(proxy))
            prefix = "g" if isinstance(proxy, GeneratorProxy) else "t"
            proxy.name = trace.make_derived_name(input_name(path, self.parameters, prefix))
        hints = {p.name_hint for bsym in trace.bound_symbols for p in _tensor_outs(bsym)}
        self._name_scope(trace.bound_symbols, named, hints)

    def _name_scope(self, bsyms: Any, named: set[int], hints: set[str | None]) -> None:
        for bsym in bsyms:
            for out in bsym.flat_proxy_outs:
                if id(out) not in named:
                    named.add(id(out))
                    self._name(out, hints)
            self._name_scope(bsym.subsymbols, named, hints)

    def _name(self, proxy: Any, hints: set[str | None]) -> None:
        trace = self.trace
        hint = proxy.name_hint if isinstance(proxy, TensorProxy) else None
        if hint is not None and hint.isidentifier() and trace.is_free(hint):
            proxy.name = trace.add_name(hint)
            return
        while f"t{trace._counter}" in hints:  # a variable of the program has this name
            trace._counter += 1
        proxy.name = trace.make_name(
            prefix=getattr(type(proxy), "prefix", "t") if not isinstance(proxy, TensorProxy) else "t"
        )


def _built_values(session: TracingSession, written: list[Shadow], result: Any) -> Iterator[Any]:
    """Every value that an epilogue builds."""
    for shadow in written:
        yield from (dict.values(shadow.copy) if isinstance(shadow.copy, dict) else shadow.copy)
    for overlay in session.objects.written_overlays():
        yield from overlay.writes.values()
    for entry in session.objects.written_entries():
        yield from entry.writes.values()
    for _, value in (*session.variables.global_writes.values(), *session.variables.cell_writes.values()):
        yield value
    yield result


def _tensor_outs(bsym: BoundSymbol) -> list[TensorProxy]:
    return [p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)]


def _epilogue(statements: list[BoundSymbol], parameters: list[str]) -> TraceCtx:
    trace = TraceCtx(name="epilogue")
    trace.plain = True
    trace.args = list(parameters)
    trace.bound_symbols.extend(statements)
    trace.set_provenance(TraceProvenance("Acquisition"))
    return trace


def _parameter_names(fn: Callable[..., Any]) -> list[str]:
    try:
        signature = inspect.signature(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    except (TypeError, ValueError):
        return []
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [p.name for p in signature.parameters.values() if p.kind in kinds]


def input_name(path: Path, parameters: list[str], prefix: str = "t") -> str:
    """Return the name of an input: a parameter's, or ``t`` or ``g`` and the steps of its path."""
    keys = path.keys
    if keys[0] == "args" and len(keys) == 2 and keys[1] < len(parameters):
        return str(parameters[keys[1]])
    if keys[0] == "kwargs" and len(keys) == 2:
        name = re.sub(r"\W", "_", str(keys[1]))
        return name if name.isidentifier() else f"{prefix}_{name}"  # ``f(**{"a b": x})``
    steps = keys[2:] if keys[0] in ("args", "kwargs") and len(keys) > 2 else keys[1:]
    return "_".join([prefix, *(re.sub(r"\W", "_", str(k)) for k in steps)])


def _order(path: Path) -> tuple[Any, ...]:
    """Return the sort key of an input.

    Positional arguments come first, then keyword arguments, then state by path: names alphabetically, indices
    numerically.
    """
    keys = path.keys
    if keys[0] == "args":
        return (0, tuple(_natural(k) for k in keys[1:]))
    if keys[0] == "kwargs":
        return (1, tuple(_natural(k) for k in keys[1:]))
    steps = ".".join(map(str, keys[1:])).split(".")  # of an overriding tensor, the dotted name is the path
    return (2, tuple(_natural(k) for k in steps))


def _natural(key: Any) -> tuple[int, int, str]:
    return (0, int(key), "") if str(key).isdigit() else (1, 0, str(key))
