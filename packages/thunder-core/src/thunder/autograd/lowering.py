"""From a partitioned program to a function that torch can differentiate to any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thunder.autograd.call_sizes import CallSizes, sizes_reader
from thunder.autograd.joint_trace import differentiable_outputs, differentiate, joint_trace
from thunder.autograd.partition import AugmentedForward, backward_trace, partition, split, values_read
from thunder.autograd.residuals import ForwardGraph
from thunder.autograd.rule_lookup import missing_gradient
from thunder.autograd.second_derivatives import check_values_are_saved, differentiable_steps
from thunder.autograd.segments import Segment, whole
from thunder.autograd.tape import BackwardStep, Tape, recording
from thunder.autograd.torch_node import Connected, Node, NodeResult
from thunder.autograd.wiring import (
    Interface,
    Present,
    Wiring,
    bases_among_results,
    residual_tensors,
    segment_wiring,
    watched_inputs,
    whole_wiring,
)
from thunder.base.devices import to_torch_device
from thunder.base.errors import UnsupportedProgram
from thunder.executor_base.executor import Executor
from thunder.ir.evaluation import eval_trace
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace
from thunder.ir.trace_context import tracectx
from thunder.ops import prims

__all__ = ["Differentiated", "Lowering", "connected"]


@dataclass(frozen=True)
class Lowering:
    """The functions that compile a backward when it is first needed."""

    executors: Sequence[Executor]
    policy: str | int
    lower: Callable[[TraceCtx], Callable[..., Any]]


@dataclass(frozen=True)
class Differentiated:
    """A program with its tape, its partition and the segments that become nodes.

    ``backward`` is the backward of all ``outputs``, through all segments.
    """

    tape: Tape
    outputs: tuple[TensorProxy, ...]
    segments: tuple[Segment, ...]
    forward: AugmentedForward
    backward: TraceCtx

    def backward_for(
        self,
        forward: AugmentedForward,
        segment: Segment,
        outputs: Sequence[TensorProxy],
        inputs: Sequence[Any],
    ) -> TraceCtx:
        """Return the backward of a segment: cotangents of ``outputs`` → gradients of ``inputs``.

        It reads the residuals of ``forward``.
        """
        return _backward_of(forward, self._backward_parts(segment.steps, outputs, inputs))

    def derivative_for(
        self,
        forward: AugmentedForward,
        segment: Segment,
        outputs: Sequence[TensorProxy],
        inputs: Sequence[Any],
        executors: Sequence[Executor],
    ) -> TraceCtx:
        """Return the backward of a segment that can be differentiated; like ``backward_for`` if it can be.

        Raises MissingGradient for a call in it without a gradient.
        """
        trace = from_trace(self.forward.trace)
        steps, calls = differentiable_steps(trace, segment.steps, executors)
        parts = self._backward_parts(steps, outputs, inputs, trace, calls)
        read = values_read(parts.backward_part, parts.gradients, parts.graph)
        saved = {p.name for p in forward.residuals}
        if calls:
            check_values_are_saved(segment.steps, parts.graph, read, saved)
        needed = parts.graph.needed(read, parts.graph.values.keys(), saved)
        for value in residual_tensors(forward):
            if value.name in needed and forward.graph.is_opaque(value):
                raise missing_gradient(forward.graph.producer[value.name])
        return _backward_of(forward, parts)

    def forward_for(self, segment: Segment, outputs: Sequence[TensorProxy]) -> AugmentedForward:
        """Return the forward with the residuals that backwards of a segment need."""
        parts = self._backward_parts(segment.steps, outputs, segment.edges)
        read = values_read(parts.backward_part, parts.gradients, parts.graph)
        residuals = {p.name for p in self.forward.residuals}
        needed = parts.graph.needed(read, parts.graph.values.keys(), residuals)
        return self.forward.with_residuals(needed & residuals)

    def _backward_parts(
        self,
        steps: Sequence[BackwardStep],
        outputs: Sequence[TensorProxy],
        inputs: Sequence[Any],
        trace: TraceCtx | None = None,
        calls: Sequence[BoundSymbol] = (),
    ) -> _BackwardParts:
        """Return the backward of steps, which read values of the forward and of ``calls``."""
        trace = trace or from_trace(self.forward.trace)
        with tracectx(trace):
            cotangents = [TensorProxy(like=p, requires_grad=True) for p in outputs]
            sums: dict[str, TensorProxy] = {}
            with recording(trace) as additions:
                for p, c in zip(outputs, cotangents, strict=True):
                    sums[p.name] = c if p.name not in sums else _added(sums[p.name], c)
        bsyms, gradients = self.tape.backward(trace, sums, inputs, steps)
        forward_part, backward_part = split([*additions, *bsyms], cotangents)
        body = [b for b in self.tape.forward if b.sym is not prims.python_return]
        graph = ForwardGraph(
            self.forward.trace.args,
            [*body, *calls, *forward_part],
            self.forward.graph.differentiable,
            copies=self.forward.graph.copies,
        )
        return _BackwardParts(trace, graph, backward_part, cotangents, gradients)


@dataclass(frozen=True)
class _BackwardParts:
    """The calls and values of a backward, before the choice of what is computed again."""

    trace: TraceCtx
    graph: ForwardGraph
    backward_part: Sequence[BoundSymbol]
    cotangents: Sequence[TensorProxy]
    gradients: tuple[Any, ...]


def _backward_of(forward: AugmentedForward, parts: _BackwardParts) -> TraceCtx:
    named = replace(forward, trace=_with_names(forward.trace, parts.trace), graph=parts.graph)
    return backward_trace(named, parts.graph, parts.backward_part, parts.cotangents, parts.gradients)


def _added(a: TensorProxy, b: TensorProxy) -> TensorProxy:
    return prims.add(a, b)  # type: ignore[no-any-return]


def _with_names(trace: TraceCtx, names_of: TraceCtx) -> TraceCtx:
    """Return ``trace`` with the names that another, derived from it, has used up."""
    new = from_trace(names_of)
    new.bound_symbols = list(trace.bound_symbols)
    return new


def connected(
    program: Differentiated,
    forward_fn: Callable[..., Any],
    backward_fn: Callable[..., Any],
    lowering: Lowering,
    interface: Interface | None = None,
    backward_is_changed: bool = False,
) -> Connected:
    """Return the program as a function that torch can differentiate.

    ``interface`` is that of the forward as it runs, which transforms may have changed. If it saves other
    tensors than the partition chose, or if a transform has changed what the backward computes, then the one
    backward serves all first derivatives, and there are no second ones.
    """
    planned, sizes = Interface.of(program.forward.trace), sizes_reader(program.forward.trace.args)
    if backward_is_changed or interface not in (None, planned):
        nodes = [_only_node(program, interface or planned, backward_fn)]
    elif len(program.segments) == 1:
        nodes = [_whole_node(program, planned, backward_fn, lowering)]
    else:
        nodes = [*_nodes(program, planned, lowering)]
    return Connected(forward_fn, nodes, bases_among_results(program.forward, program.tape.forward), sizes)


def _only_node(program: Differentiated, interface: Interface, backward_fn: Callable[..., Any]) -> Node:
    def refused(present: Present) -> Callable[..., Any]:
        raise UnsupportedProgram(
            "a transform changed the backward or its residuals: there are first derivatives only",
            hint="Leave the transform out for second derivatives.",
        )

    returned = program.forward.trace.bound_symbols[-1].args[0]["flat_output"]
    proxies = [returned[i] for i in interface.results]
    results = [NodeResult(p.dtype.torch_dtype, to_torch_device(p.device)) for p in proxies]
    watched = watched_inputs(program.forward, program.backward)
    wiring = whole_wiring(program.forward, interface, whole(program.tape, program.outputs), watched)
    return Node(wiring, refused, refused, backward_fn, results)


def _whole_node(
    program: Differentiated, interface: Interface, backward_fn: Callable[..., Any], lowering: Lowering
) -> Node:
    (segment,), forward = program.segments, program.forward
    residuals = residual_tensors(forward)
    hidden = [forward.graph.source(residuals[i]) for i in interface.hidden]
    wiring = whole_wiring(forward, interface, segment, watched_inputs(forward, program.backward))
    builder = _NodeBuilder(program, forward, segment, (*program.outputs, *hidden), forward.trace.args)
    return builder.node(wiring, lowering, backward_fn)


def _nodes(program: Differentiated, interface: Interface, lowering: Lowering) -> Iterator[Node]:
    """Yield a node for each segment."""
    graph = program.forward.graph
    hidden, inputs = _hidden(program, interface), graph.input_names
    watched = watched_inputs(program.forward, program.backward)
    for segment in program.segments:
        names = segment.computed | {e.name for e in segment.edges if e.name in inputs}
        own = [p for p in hidden if graph.source(p).name in names]
        hidden = [p for p in hidden if graph.source(p).name not in names]
        outputs = (*segment.outputs, *map(graph.source, own))
        forward = program.forward_for(segment, outputs)
        wiring = segment_wiring(program.forward, forward, segment, own, watched)
        yield _NodeBuilder(program, forward, segment, outputs, segment.edges).node(wiring, lowering)


def _hidden(program: Differentiated, interface: Interface) -> list[TensorProxy]:
    """Return the hidden results, by their names in the program, but outputs of segments.

    A result of the program is saved as another tensor of the same memory, which is a hidden result too; so is
    the copy of an input that will be overwritten.
    """
    outputs = {p.name for segment in program.segments for p in segment.outputs}
    connecting = outputs - {p.name for p in program.outputs}
    residuals = residual_tensors(program.forward)
    hidden = [residuals[i] for i in interface.hidden]
    return [p for p in hidden if p.name not in connecting]


@dataclass(frozen=True)
class _NodeBuilder:
    """Builds the node of a segment: cotangents of ``outputs`` → gradients of ``inputs``.

    ``forward`` has the residuals that the node saves.
    """

    program: Differentiated
    forward: AugmentedForward
    segment: Segment
    outputs: tuple[TensorProxy, ...]
    inputs: Sequence[Any]

    def backward(self, present: Present) -> TraceCtx:
        """Return the backward for the outputs that have a cotangent."""
        return self.program.backward_for(self.forward, self.segment, self._present(present), self.inputs)

    def _present(self, present: Present) -> list[TensorProxy]:
        return [p for p, is_present in zip(self.outputs, present, strict=True) if is_present]

    def node(self, wiring: Wiring, lowering: Lowering, backward_fn: Callable[..., Any] | None = None) -> Node:
        """Return the node; other backwards than ``backward_fn`` are compiled when needed."""

        def variant(present: Present) -> Callable[..., Any]:
            return lowering.lower(self.backward(present))

        def derivative(present: Present) -> Callable[..., Any]:
            backward = self.program.derivative_for(
                self.forward, self.segment, self._present(present), self.inputs, lowering.executors
            )
            return _differentiable_backward(backward, lowering)

        return Node(wiring, variant, derivative, backward_fn)


def _differentiable_backward(backward: TraceCtx, lowering: Lowering) -> Callable[..., Any]:
    """Return a backward as a function ``(sizes, *residuals, *cotangents)`` that enters torch's graph."""
    flat, positions = _flat(backward)
    size = len(backward.bound_symbols[-1].args[0])
    program = _connect(flat, lowering)

    def gradients(sizes: CallSizes | None, *args: Any) -> tuple[Any, ...]:
        grads: list[Any] = [None] * size
        for position, value in zip(positions, program(sizes, args), strict=True):
            grads[position] = value
        return tuple(grads)

    return gradients


def _flat(backward: TraceCtx) -> tuple[TraceCtx, list[int]]:
    """Return a backward without collections, and the positions of its gradients.

    It is recorded again, so that its cotangents require grad.
    """
    unpacked: dict[str, tuple[Any, ...]] = {}
    body: list[BoundSymbol] = []
    for bsym in backward.bound_symbols:
        if bsym.sym is prims.unpack_sequence:
            unpacked[bsym.args[0].name] = bsym.output
        else:
            body.append(bsym)
    tensors, others = (unpacked.get(c.name, ()) for c in unpacked["saved_for_backward"])
    cotangents = unpacked.get("cotangents", ())
    (gradients,) = body[-1].args
    positions = [i for i, g in enumerate(gradients) if g is not None]
    source = from_trace(backward)
    source.args = [*tensors, *others, *cotangents]
    source.bound_symbols = [*body[:-1], body[-1].from_bsym(args=(tuple(gradients[i] for i in positions),))]
    flat = TraceCtx()
    with recording(flat) as recorded:
        flat.args = [a.replace(name=flat.make_name(a.name)) if is_proxy(a) else a for a in source.args]
        for argument in flat.args[len(tensors) + len(others) :]:
            argument.requires_grad = argument.dtype.is_inexact
        prims.python_return(eval_trace(source, *flat.args))
    flat.bound_symbols = recorded
    return flat, positions


def _connect(trace: TraceCtx, lowering: Lowering) -> Callable[..., Any]:
    """Return a flat functional trace as a function ``(sizes, arguments)`` that torch can differentiate."""
    outputs = differentiable_outputs(trace)
    if not outputs:
        lowered = lowering.lower(trace)
        return lambda sizes, args: lowered(*args)
    tape = differentiate(trace, lowering.executors, keep_calls=True)
    joint = joint_trace(tape, outputs)
    cotangents = joint.args[len(trace.args) :]
    forward, backward = partition(joint, cotangents, tape.differentiable, lowering.policy)
    program = Differentiated(tape, outputs, (whole(tape, outputs),), forward, backward)
    return connected(program, lowering.lower(forward.trace), lowering.lower(backward), lowering).run
