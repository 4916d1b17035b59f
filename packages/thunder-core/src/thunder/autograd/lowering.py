"""From a partitioned program to one that runs and that torch can differentiate, as often as it likes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thunder.autograd.joint_trace import Tape, differentiable_outputs, differentiate, joint_trace, recording
from thunder.autograd.partition import AugmentedForward, backward_trace, partition, read_by, split
from thunder.autograd.residuals import Forward
from thunder.autograd.rule_lookup import missing_gradient
from thunder.autograd.segments import Segment, whole
from thunder.autograd.torch_node import Connected, Node
from thunder.autograd.wiring import (
    Interface,
    Present,
    Wiring,
    originals,
    segment_wiring,
    watched_inputs,
    whole_wiring,
)
from thunder.base.errors import UnsupportedProgram
from thunder.executor_base.executor import Executor
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.rewrite import eval_trace
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace, tracectx
from thunder.ops import prims

__all__ = ["Differentiated", "Lowering", "connected"]


@dataclass(frozen=True)
class Lowering:
    """How traces that are made when they are first needed become functions."""

    executors: Sequence[Executor]
    policy: str | int
    lower: Callable[[TraceCtx], Callable[..., Any]]


@dataclass(frozen=True)
class Differentiated:
    """A program with its tape, the segments of it that become nodes, and its partition.

    ``backward`` is that of all results, from all segments.
    """

    tape: Tape
    outputs: tuple[TensorProxy, ...]
    segments: tuple[Segment, ...]
    forward: AugmentedForward
    backward: TraceCtx

    def backward_for(
        self, forward: AugmentedForward, segment: Segment, begun: Sequence[TensorProxy], wanted: Sequence[Any]
    ) -> TraceCtx:
        """The backward of a segment that begins with the cotangents of the values ``begun``, computes the
        gradients of those ``wanted``, and gets what ``forward`` keeps.
        """
        found = self._computation(segment, begun, wanted)
        named = replace(forward, trace=_with_names(forward.trace, found.trace), values=found.values)
        return backward_trace(named, found.values, found.late, found.cotangents, found.gradients)

    def kept_for(self, segment: Segment, outputs: Sequence[TensorProxy]) -> AugmentedForward:
        """The forward, as one that keeps what the backwards of a segment with these ``outputs`` need."""
        found = self._computation(segment, outputs, segment.edges)
        read = read_by(found.late, found.gradients, found.values)
        kept = {p.name for p in self.forward.kept}
        return self.forward.keeping(found.values.needed(read, found.values.values.keys(), kept) & kept)

    def _computation(
        self, segment: Segment, begun: Sequence[TensorProxy], wanted: Sequence[Any]
    ) -> _Computation:
        trace = from_trace(self.forward.trace)
        with tracectx(trace):
            cotangents = [TensorProxy(like=p, requires_grad=True) for p in begun]
            sums: dict[str, TensorProxy] = {}
            with recording(trace) as additions:
                for p, c in zip(begun, cotangents, strict=True):
                    sums[p.name] = c if p.name not in sums else _added(sums[p.name], c)
        steps, gradients = self.tape.backward(trace, sums, wanted, segment.steps)
        early, late = split([*additions, *steps], cotangents)
        body = [b for b in self.tape.forward if b.sym is not prims.python_return]
        values = Forward(self.forward.trace.args, [*body, *early], self.forward.values.on_tape)
        return _Computation(trace, values, late, cotangents, gradients)


@dataclass(frozen=True)
class _Computation:
    """What a backward computes, before it is decided what of it is computed again."""

    trace: TraceCtx
    values: Forward
    late: Sequence[BoundSymbol]
    cotangents: Sequence[TensorProxy]
    gradients: tuple[Any, ...]


def _added(a: TensorProxy, b: TensorProxy) -> TensorProxy:
    return prims.add(a, b)  # type: ignore[no-any-return]


def _with_names(trace: TraceCtx, names_of: TraceCtx) -> TraceCtx:
    """``trace`` with the names that another, made of it, has used up."""
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
    """The program as a function that torch can differentiate.

    ``interface`` is that of the forward as it runs, which transforms may have changed. Where it keeps other
    tensors than the partition chose, or where a transform has changed what the backward computes, the one
    backward that there is serves all first derivatives, and there are no second ones.
    """
    planned = Interface.of(program.forward.trace)
    if backward_is_changed or interface not in (None, planned):
        return Connected(forward_fn, [_only_node(program, interface or planned, backward_fn)])
    if len(program.segments) == 1:
        return Connected(forward_fn, [_whole_node(program, planned, backward_fn, lowering)])
    return Connected(forward_fn, [*_nodes(program, planned, lowering)])


def _only_node(program: Differentiated, interface: Interface, backward_fn: Callable[..., Any]) -> Node:
    def refused(present: Present) -> Callable[..., Any]:
        raise UnsupportedProgram(
            "a transform changed the backward or what is kept for it: there are first derivatives only",
            hint="Leave the transform out for second derivatives.",
        )

    returned = program.forward.trace.bound_symbols[-1].args[0]["flat_output"]
    results = [returned[i] for i in interface.results]
    watched = watched_inputs(program.forward, program.backward)
    wiring = whole_wiring(program.forward, interface, whole(program.tape, program.outputs), watched)
    return Node(wiring, refused, refused, backward_fn, results)


def _whole_node(
    program: Differentiated, interface: Interface, backward_fn: Callable[..., Any], lowering: Lowering
) -> Node:
    (segment,), forward = program.segments, program.forward
    hidden = [originals(forward)[i] for i in interface.hidden]
    wiring = whole_wiring(forward, interface, segment, watched_inputs(forward, program.backward))
    piece = _Piece(program, forward, segment, (*program.outputs, *hidden), forward.trace.args)
    return piece.node(wiring, lowering, backward_fn)


def _nodes(program: Differentiated, interface: Interface, lowering: Lowering) -> Iterator[Node]:
    """A node for each segment."""
    hidden, inputs = _hidden(program, interface), program.forward.values.input_names
    watched = watched_inputs(program.forward, program.backward)
    for segment in program.segments:
        names = segment.computed | {e.name for e in segment.edges if e.name in inputs}
        own = [p for p in hidden if p.name in names]
        hidden = [p for p in hidden if p.name not in names]
        outputs = (*segment.outputs, *own)
        kept = program.kept_for(segment, outputs)
        wiring = segment_wiring(program.forward, kept, segment, own, watched)
        yield _Piece(program, kept, segment, outputs, segment.edges).node(wiring, lowering)


def _hidden(program: Differentiated, interface: Interface) -> list[TensorProxy]:
    """The hidden results, under their names in the program, but what segments have as outputs anyway.

    A result of the program is saved as another tensor of the same memory, which is a hidden result too; so is
    the copy of an input that will be overwritten.
    """
    outputs = {p.name for segment in program.segments for p in segment.outputs}
    connecting = outputs - {p.name for p in program.outputs}
    found = [originals(program.forward)[i] for i in interface.hidden]
    return [p for p in found if p.name not in connecting]


@dataclass(frozen=True)
class _Piece:
    """A segment with the forward as it keeps things for it, the values that have cotangents, and those whose
    gradients its backward returns.
    """

    program: Differentiated
    forward: AugmentedForward
    segment: Segment
    outputs: tuple[TensorProxy, ...]
    wanted: Sequence[Any]

    def trace(self, present: Present) -> TraceCtx:
        """The backward for these cotangents."""
        begun = [p for p, there in zip(self.outputs, present, strict=True) if there]
        return self.program.backward_for(self.forward, self.segment, begun, self.wanted)

    def node(self, wiring: Wiring, lowering: Lowering, backward_fn: Callable[..., Any] | None = None) -> Node:
        """The node, whose other backwards are made when they are first needed."""

        def variant(present: Present) -> Callable[..., Any]:
            return lowering.lower(self.trace(present))

        def derivative(present: Present) -> Callable[..., Any]:
            for value in originals(self.forward):
                if self.forward.values.is_opaque(value):
                    raise missing_gradient(self.forward.values.producer[value.name])
            return _differentiable(self.trace(present), lowering)

        return Node(wiring, variant, derivative, backward_fn)


def _differentiable(backward: TraceCtx, lowering: Lowering) -> Callable[..., Any]:
    """A backward as a function of what is kept and of the cotangents, which enters torch's graph."""
    flat, positions = _flat(backward)
    size = len(backward.bound_symbols[-1].args[0])
    program = _connect(flat, lowering)

    def gradients(*args: Any) -> tuple[Any, ...]:
        found: list[Any] = [None] * size
        for position, value in zip(positions, program(*args), strict=True):
            found[position] = value
        return tuple(found)

    return gradients


def _flat(backward: TraceCtx) -> tuple[TraceCtx, list[int]]:
    """A backward with its collections unpacked, recorded anew so that cotangents require grad; and the
    positions of the gradients that it returns.
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
    """A flat functional trace as a function that torch can differentiate."""
    outputs = differentiable_outputs(trace)
    if not outputs:
        return lowering.lower(trace)
    tape = differentiate(trace, lowering.executors, keep_calls=True)
    joint = joint_trace(tape, outputs)
    cotangents = joint.args[len(trace.args) :]
    forward, backward = partition(joint, cotangents, tape.values, lowering.policy)
    program = Differentiated(tape, outputs, (whole(tape, outputs),), forward, backward)
    return connected(program, lowering.lower(forward.trace), lowering.lower(backward), lowering)
