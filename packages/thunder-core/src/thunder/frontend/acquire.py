"""Acquisition: one call of a function becomes a trace, its facts and its side effects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from thunder.base.cache_queries import CacheQuery
from thunder.base.devices import Device, declared_device
from thunder.base.errors import RaisedByProgram, UnsupportedProgram
from thunder.base.langctx import using_language
from thunder.base.opaque_marks import OpaqueSet
from thunder.base.provenance import Path, outer_metadata, own_name
from thunder.frontend import ambient_state
from thunder.frontend.decisions.computed_sizes import ComputedSizes, OtherAnswers, answers_at
from thunder.frontend.decisions.decision import Decision
from thunder.frontend.decisions.early_run import EarlyRun
from thunder.frontend.decisions.speculation import Speculation
from thunder.frontend.epilogue.value_parts import proxies_of
from thunder.frontend.facts import Fact
from thunder.frontend.free_sizes import free_sizes, size_relations
from thunder.frontend.guards import Prologue, ambient_fact, prologue_trace
from thunder.frontend.inner_gradients.freed_graphs import without_freed_graphs
from thunder.frontend.last_facts import note_last_facts, tensors_of
from thunder.frontend.lookasides import rng_generators
from thunder.frontend.lookasides.grad_requests import GradRequests
from thunder.frontend.lookasides.mode_regions import InferenceModes
from thunder.frontend.lookasides.new_leaves import make_leaves_inputs
from thunder.frontend.objects.object_table import ObjectTable
from thunder.frontend.objects.unmodelled_tensors import is_modelled, scalar_metadata
from thunder.frontend.opaque_calls.opaque_acquisition import OpaqueCalls
from thunder.frontend.prologue_statements import Interface
from thunder.frontend.ran_code import RanCode, has_run_code, keep_for_another_trace, objects_of_one_call
from thunder.frontend.recorded_call import recorded_call
from thunder.frontend.session import TracingSession
from thunder.frontend.session_rules import session_rules
from thunder.frontend.size_choice import SizeChoice
from thunder.frontend.trace_finalizer import TraceFinalizer
from thunder.frontend.trace_request import TraceRequest
from thunder.frontend.traced_replacements import ReplacedCalls, ReplacedFunction, ReplacementTable
from thunder.frontend.tracing_policy import Tracer
from thunder.frontend.types.reached_generators import LeftInPart
from thunder.frontend.value_names import Input, input_name, is_state
from thunder.interpreter import Machine, jitting
from thunder.ir.proxies import GeneratorProxy, ProxyTag, TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.size_facts import SizeFacts
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.symbolic_sizes import new_number
from thunder.ir.trace import TraceCtx, detached_trace, tracectx
from thunder.ir.unmodelled_proxies import UnmodelledProxy
from thunder.ops import prims
from thunder.plugins.manager import get_manager
from thunder.wrappers.overrides import Overrides


@dataclass(frozen=True, kw_only=True, eq=False)
class Acquisition:
    """The traces of one call, and the facts that they depend on.

    ``epilogue`` is None where the computation's value is the result. ``interpreted`` counts bytecode
    instructions.
    """

    prologue: Prologue
    computation: TraceCtx
    epilogue: TraceCtx | None
    facts: tuple[Fact, ...]
    interpreted: int
    log: list[Any]
    #: whether the program writes to objects of the user's
    writes: bool
    #: whether the traces are for this call alone, Note [State that a program changes while it is read]
    is_for_one_call: bool
    #: whether a handler of the program would see an error of an operator
    handles_errors: bool
    #: and may end it there, or raise another one
    catches_errors: bool
    #: whether the program calls what exists in traces only
    calls_symbols: bool
    #: the functions in whose place others were traced
    replaced: tuple[ReplacedFunction, ...] = ()
    #: the questions about data that the program asks, with the answers that the traces are for
    decisions: tuple[Decision, ...] = ()
    #: what the program writes of Python's objects, as the user would write it
    written: frozenset[str] = frozenset()
    #: what is known of symbolic sizes; facts about them are added until the compile ends
    sizes: SizeFacts | None = None
    #: the inputs of the computation, with their paths
    inputs: tuple[Input, ...] = ()
    #: the inputs, by name, that require grad before the computation runs, because the program sets it
    grad_requests: frozenset[str] = frozenset()
    #: the code of the functions that were interpreted and that the program has not made itself
    code: tuple[CodeType, ...] = ()

    @property
    def may_leave(self) -> bool:
        """Whether the computation checks answers or sizes, and leaves where they are others."""
        return bool(self.decisions) or (self.sizes is not None and bool(self.sizes.computed))


def size_facts(sizes: SizeFacts | None, inputs: Sequence[Input]) -> tuple[Fact, ...]:
    """Return the facts about symbolic sizes that the prologue checks."""
    relations = [] if sizes is None else size_relations(sizes, inputs)
    return tuple(Fact(prims.check_sizes, (first, r, *others)) for r, (first, *others) in relations)


def acquire_stable(request: TraceRequest) -> Acquisition:
    """Return what is acquired; where the program has changed what it reads, for later calls too if it can be.

    See Note [State that a program changes while it is read].
    """
    program = _acquire_with_generators(request)
    if not program.is_for_one_call:
        return program
    try:
        other = acquire(request)
    except (UnsupportedProgram, RaisedByProgram, OtherAnswers):
        return program
    return other if not other.is_for_one_call and _are_same(program, other) else program


def _acquire_with_generators(request: TraceRequest) -> Acquisition:
    """Return what is acquired, once each generator that the program consumes in part is advanced itself."""
    while True:
        try:
            return acquire(request)
        except LeftInPart:  # each time there is one less that is interpreted
            continue


def _are_same(a: Acquisition, b: Acquisition) -> bool:
    """Return whether two acquisitions for one call have equal programs of the same objects."""
    texts = [
        [t.program(include_timing=False) for t in (p.computation, p.epilogue) if t is not None]
        for p in (a, b)
    ]
    return (
        [t.text for t in texts[0]] == [t.text for t in texts[1]]
        and all(_have_same_objects(x.context, y.context) for x, y in zip(*texts, strict=True))
        and [(p.name, path.place) for p, path in a.inputs] == [(p.name, path.place) for p, path in b.inputs]
        and [(d.question_text, d.answer) for d in a.decisions]
        == [(d.question_text, d.answer) for d in b.decisions]
    )


def _have_same_objects(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(_is_same(value, b[name]) for name, value in a.items())


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) is CacheQuery and a.use == b.use)


def acquire(request: TraceRequest) -> Acquisition:
    """Trace the call of a request without changing an object.

    Raises OtherAnswers for sizes that depend on data and have differed; RaisedByProgram with what the program
    raises; UnsupportedProgram, at its line, if it has no trace.
    """
    fn, choice = request.fn, request.sizes
    _refuse_untraceable(fn)
    trace, inputs = TraceCtx(fn=fn), list[Input]()
    roots = {"args": request.args, "kwargs": request.kwargs}
    sizes = choice.begin() if choice is not None else None
    objects = _object_table(trace, inputs, request, sizes)
    _apply_overrides(trace, objects, request)
    rules, table = session_rules(get_manager()), ReplacementTable(request.replacements)
    session = Tracer(
        trace,
        objects,
        request.language,
        request.sharp_edge,
        rules,
        table,
        assumed_device=request.device,
    )
    computed = ComputedSizes(sizes, None if choice is None else choice.computed)
    session.roots, session.equal_modules.is_on = roots, not request.record_log
    session.speculation = _speculation(session, inputs, roots, request, computed)
    _set_inputs(session, sizes, request)
    machine = Machine(session, natives=rules.lookasides.class_methods, record_history=request.record_log)
    with _session_of_a_call(session, roots, may_repeat=choice is not None):
        with ambient_state.restored(), tracectx(trace), using_language(request.language), jitting():
            called = recorded_call(session, machine, fn, request.args, request.kwargs)
            result = without_freed_graphs(session, _checked(called, session, computed))
            _end_grad_modes(session, inputs, request.disable_grad, result)
            finalizer = TraceFinalizer(session, inputs, fn)
            computation, epilogue, reached = finalizer.run(result)
        with torch._C.DisableTorchFunction():
            note_last_facts(session, inputs, roots, result, request.contributed, request.inputs_are_disjoint)
            added = _added_tensors(session, inputs, request.overrides if request.rewrites_inputs else None)
            interface = Interface(objects.facts, finalizer.inputs, reached, added, sizes)
            own_objects = objects_of_one_call(session, inputs)
            prologue = prologue_trace(interface, roots, request.trusted, own_objects)
        reported = _reported(session, machine, finalizer, sizes)
    return Acquisition(prologue=prologue, computation=computation, epilogue=epilogue, **reported)


@contextmanager
def _session_of_a_call(
    session: TracingSession, roots: Mapping[str, Any], *, may_repeat: bool
) -> Iterator[None]:
    """Let the session go at the end; after an error the call may be traced again, with its numbers."""
    try:
        yield
    except Exception:
        if may_repeat:
            keep_for_another_trace(session, roots)
        raise
    finally:
        session.forget()


def _set_inputs(session: TracingSession, sizes: SizeFacts | None, request: TraceRequest) -> None:
    """Set which numbers and sizes are inputs, and whether results may require grad."""
    if request.sizes is not None:
        session.objects.is_symbol = request.sizes.is_symbol
        session.objects.has_free_sizes = request.sizes.has_free_sizes
    session.tracks_grad = not request.disable_grad
    session.follow_sizes(sizes)


def _speculation(
    session: TracingSession,
    inputs: list[Input],
    roots: dict[str, Any],
    request: TraceRequest,
    computed: ComputedSizes,
) -> Speculation | None:
    """Return what answers questions about data and runs opaque callables, or None if they are refused."""
    session.state(OpaqueCalls).callables = OpaqueSet(request.opaque)
    session.state(RanCode).roots = roots
    if request.answers is None:
        return None
    return Speculation(session, EarlyRun(session.trace, inputs, roots), request.answers, computed)


def _checked(result: Any, session: TracingSession, computed: ComputedSizes) -> Any:
    """Return the result of a program, or raise OtherAnswers; not after code that ran as it is."""
    if session.speculation is not None and not has_run_code(session):
        computed.check_answers(answers_at(session.speculation.decisions))
    return result


def _reported(
    session: Tracer, machine: Machine, finalizer: TraceFinalizer, sizes: SizeFacts | None
) -> dict[str, Any]:
    """Return the fields of an Acquisition that the session and the interpreter have collected."""
    return {
        "sizes": sizes,
        "inputs": tuple(finalizer.inputs),
        "facts": (ambient_fact(), *session.objects.facts),
        "writes": finalizer.writes,
        "is_for_one_call": session.state(RanCode).has_changed_facts,
        "written": frozenset((*session.writes.names(), *session.writes.parts())),
        "interpreted": machine.instructions,
        "log": machine.history,
        "handles_errors": session.handles_errors,
        "catches_errors": session.catches_errors,
        "calls_symbols": session.calls_symbols,
        "replaced": session.state(ReplacedCalls).summary(),
        "grad_requests": session.state(GradRequests).early_inputs(),
        "code": session.interpreted_code(),
        "decisions": () if session.speculation is None else tuple(session.speculation.decisions),
    }


def _object_table(
    trace: TraceCtx, inputs: list[Input], request: TraceRequest, sizes: SizeFacts | None
) -> ObjectTable:
    """An object table that appends each tensor and generator that it finds to ``inputs``.

    It lives in a cycle until the next collection, and does not hold the arguments of the request.
    """
    tracks_grad = torch.is_grad_enabled() and not request.disable_grad
    device, free = request.device, request.sizes

    def make_input(
        t: torch.Tensor | torch.Generator | float, path: Path, original: torch.Tensor | None = None
    ) -> TensorProxy | GeneratorProxy | SymbolicNumber:
        if isinstance(t, int | float):
            assert sizes is not None, "a number is an input only as a symbol"
            inputs.append((new_number(sizes, t, path.source), path))
            return inputs[-1][0]
        proxy = input_proxy(t, path, original, device)
        trace.grad_enabled |= tracks_grad and requires_grad(proxy)
        if free is not None and sizes is not None and isinstance(t, torch.Tensor):
            assert isinstance(proxy, TensorProxy), "the proxy of a tensor is one"
            proxy = _with_free_sizes(proxy, t, path, free, sizes, inputs)
        inputs.append((proxy, path))
        return proxy

    return ObjectTable(make_input, inputs)


def _apply_overrides(trace: TraceCtx, objects: ObjectTable, request: TraceRequest) -> None:
    """Let the program read the overriding tensors.

    Where a transform may rewrite inputs, one of another shape or dtype than the tensor that it overrides is
    traced with that tensor's metadata. A tensor that requires grad may become an input then, so that the
    trace keeps the regions without gradients.
    """
    objects.apply_overrides(request.overrides)
    if request.rewrites_inputs:
        objects.keeps_original_metadata = True
        trace.grad_enabled = torch.is_grad_enabled() and not request.disable_grad


def _needs_grad_mode(trace: TraceCtx, inputs: list[Input], before: bool) -> bool:
    """Return whether the program changes the grad mode, or enables it where it matters."""
    if torch.is_grad_enabled() != before:
        return True
    regions_on = any(b.sym is prims.set_grad_enabled and b.args[0] for b in trace.bound_symbols)
    return regions_on and any(requires_grad(proxy) for proxy, _ in inputs)


def _end_grad_modes(session: TracingSession, inputs: list[Input], disable_grad: bool, result: Any) -> None:
    """Decide whether the program needs gradients; refuse them in inference mode, where torch has none."""
    if session.state(GradRequests).requests:
        make_leaves_inputs(session, proxies_of(session, [*session.writes.values(), result]))
    trace = session.trace
    trace.grad_enabled |= _needs_grad_mode(trace, inputs, session.modes.grad) and not disable_grad
    if session.state(InferenceModes).had_grad and trace.grad_enabled:
        raise UnsupportedProgram(
            "the program enables gradients inside of inference mode",
            hint="Leave inference mode before, or use torch.no_grad in its place.",
        )


def input_proxy(
    t: torch.Tensor | torch.Generator,
    path: Path,
    original: torch.Tensor | None,
    device: Device | None,
) -> TensorProxy | GeneratorProxy:
    """Return the proxy of an input, with all metadata that a program can read.

    With ``original`` they are those of the tensor that ``t`` overrides, on the device of ``t``.
    """
    if isinstance(t, torch.Generator):
        return GeneratorProxy(device=rng_generators.device_of(t, device))
    if not is_modelled(t):
        with torch._C.DisableTorchFunctionSubclass():
            return UnmodelledProxy.of(
                type(t),
                outer_metadata(t)[-1],
                **scalar_metadata(t),
                requires_grad=t.requires_grad,
                declared_leaf=t.is_leaf,
            )
    like = t if original is None else original
    with torch._C.DisableTorchFunction():
        return TensorProxy(
            like=like,
            device=device or declared_device(t) or t.device,
            requires_grad=t.requires_grad,
            strides=like.stride(),
            input_offset=like.storage_offset(),
            declared_leaf=t.is_leaf,
            tags={ProxyTag.STATIC_MEMORY_LOCATION} if is_state(path) else None,
        )


def _with_free_sizes(
    proxy: TensorProxy, t: torch.Tensor, path: Path, choice: SizeChoice, sizes: SizeFacts, inputs: list[Input]
) -> TensorProxy:
    """Return the proxy of an input with symbols for the sizes and strides that are free: further inputs."""
    dimensions = choice.dimensions(t, path)
    steps = choice.steps(t, path)
    if not dimensions and not steps:
        return proxy
    assert proxy.strides is not None, "every input has strides"
    free = free_sizes(sizes, proxy.shape, proxy.strides, path, dimensions, steps)
    for d, wish in dimensions.items():
        if wish is not None:
            choice.keep(free.shape[d], wish)
    shape = path.step("attribute", "shape")
    inputs += [(free.shape[d], shape.step("index", d)) for d in sorted(dimensions)]
    strides = path.step("strides", "strides")
    inputs += [(stride, strides.step("index", d)) for d, stride in free.own_strides(path).items()]
    return proxy.replace(shape=free.shape, strides=free.strides, input_offset=proxy.input_offset)


def _added_tensors(
    session: TracingSession, inputs: list[Input], overrides: Overrides | None
) -> list[tuple[TensorProxy, Path]]:
    """Return the overriding tensors that the program does not read, each with a name of the trace.

    The facts about them are noted, and that tensors with several names are the same objects.
    """
    if overrides is None:
        return []
    count = len(inputs)
    own = (path for path in session.objects.overridden.values() if path.parent is overrides.path)
    paths = {path.key: path for path in own}
    with detached_trace():
        for name, tensor in overrides.tensors.items():
            session.adopt(tensor, paths.get(name) or overrides.path.step("key", name))
    added = tensors_of(inputs[count:])
    for proxy, path in added:
        proxy.name = session.trace.make_derived_name(input_name(path, []))
    return added


def _refuse_untraceable(fn: Callable[..., Any]) -> None:
    """Refuse generator functions, coroutines, and calls under modes that are not traced."""
    ambient_state.refuse_foreign_modes()
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
