"""The partition of a joint trace into a forward and a backward, which reads saved values.

def joint(x, w, t2): …     def computation(x, w): …
                             return {'output': t0, 'flat_args': [x, w], 'flat_output': (t0,)}, ((x, w), ())
                     →     def backward_fn(saved_for_backward, cotangents):
                             …
                             return (t6, t4)
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from thunder.autograd.joint_program import BackwardPlanner, JointProgram, residuals_of_order
from thunder.autograd.rematerialiser import Rematerialiser, live_calls
from thunder.autograd.residuals import ForwardGraph, choose_residuals
from thunder.autograd.saved_copies import possible_copies
from thunder.ir.aliasing import views_of
from thunder.ir.proxies import CollectionProxy, TensorProxy, Variable, is_proxy
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import TraceCtx, TraceProvenance, TraceTag, from_trace
from thunder.ir.trace_context import tracectx
from thunder.ops import prims

__all__ = ["AugmentedForward", "backward_trace", "partition", "split", "values_read"]


@dataclass(frozen=True)
class AugmentedForward:
    """The forward of a partitioned program, with what its backwards need.

    ``graph`` has the values that need no cotangent. ``residuals`` are the values that the backward gets,
    under their names in the forward; ``renamed`` maps those that are also results of the program, or that
    will be overwritten, to their names in the backward.
    """

    trace: TraceCtx
    graph: ForwardGraph
    residuals: tuple[Any, ...]
    renamed: Mapping[Variable, Any]

    @property
    def saved(self) -> tuple[Any, ...]:
        """The residuals under their names in the backward."""
        return tuple(self.renamed.get(Variable(p), p) for p in self.residuals)

    def with_residuals(self, names: Set[str]) -> AugmentedForward:
        """Return the same forward with the tensors of these names as its only residual tensors.

        Other values stay: every node gets all of them.
        """
        chosen = (p for p in self.residuals if p.name in names or not isinstance(p, TensorProxy))
        return replace(self, residuals=tuple(chosen))


def partition(
    joint: TraceCtx,
    cotangents: Sequence[TensorProxy],
    differentiable: Iterable[str],
    policy: str | int,
    written: Set[str] = frozenset(),
    connecting: Iterable[TensorProxy] = (),
    planner: BackwardPlanner | None = None,
) -> tuple[AugmentedForward, TraceCtx]:
    """Split ``joint``, whose last arguments are ``cotangents``, into forward and backward.

    ``differentiable`` are the names of the program's values. ``policy`` decides what is saved
    (:func:`~thunder.autograd.residuals.choose_residuals`), or ``planner`` does
    (Note [Order of a backward]). ``written`` are the names of inputs to whose memory the program writes after
    the forward. ``connecting`` are values that leave the forward too, because they connect one node with
    another (Note [Segments]).
    """
    inputs = joint.args[: len(joint.args) - len(cotangents)]
    result, gradients = joint.bound_symbols[-1].args
    forward_part, backward_part = split(joint.bound_symbols[:-1], cotangents)
    graph = ForwardGraph(inputs, forward_part, frozenset(differentiable), list(proxies_in(result)))
    parts = _Parts(
        joint, inputs, cotangents, result, gradients, forward_part, backward_part, graph, policy, written
    )
    parts = replace(parts, connecting=tuple(connecting))
    return parts.partitioned(None if planner is None else planner(parts.program()))


@dataclass(frozen=True)
class _Parts:
    """The parts of a joint trace that become a forward and a backward."""

    joint: TraceCtx
    inputs: Sequence[Any]
    cotangents: Sequence[TensorProxy]
    result: Any
    gradients: tuple[Any, ...]
    forward_part: Sequence[BoundSymbol]
    backward_part: Sequence[BoundSymbol]
    graph: ForwardGraph
    policy: str | int
    written: Set[str]
    connecting: tuple[TensorProxy, ...] = ()

    def program(self) -> JointProgram:
        """Return the parts as planners see them."""

        def traces(order: Sequence[BoundSymbol] | None) -> tuple[TraceCtx, TraceCtx]:
            forward, backward = self.partitioned(order)
            return forward.trace, backward

        return JointProgram(
            inputs=tuple(self.inputs),
            cotangents=tuple(self.cotangents),
            forward=tuple(self.forward_part),
            backward=tuple(self.calls_with_cotangent()),
            results=tuple(proxies_in(self.result)),
            gradients=tuple(proxies_in(self.gradients)),
            connecting=self.connecting,
            graph=self.graph,
            partitioned=traces,
        )

    def calls_with_cotangent(self) -> Sequence[BoundSymbol]:
        """Return the calls of the backward whose values something reads."""
        # A gradient that reaches no input, as of a value before its overwriting, may be a connecting value's.
        if self.connecting:
            return self.backward_part
        return live_calls(self.backward_part, proxies_in(self.gradients))

    def partitioned(self, order: Sequence[BoundSymbol] | None) -> tuple[AugmentedForward, TraceCtx]:
        """Return the forward and the backward, whose calls are in this order if there is one."""
        start = time.perf_counter_ns()
        inputs, result = self.inputs, self.result
        graph, residuals = self._by_policy() if order is None else (self.graph, self._by_order(order))
        copies = list(graph.copies.values())
        returned = {p.name for p in (*residuals, *proxies_in(result))}
        residuals += [p for p in self.connecting if p.name not in returned]
        trace = from_trace(self.joint)
        trace.args, trace.name = list(inputs), "computation"
        trace.tags.add(TraceTag.AUGMENTED_FORWARD)
        trace.grad_enabled = False  # torch's autograd runs it where gradients are off
        overwritten = {v.name for v in residuals if _aliases(v.name, self.written, graph.producer)}
        renaming = _copies(trace, residuals, result, overwritten)
        sources = [call.args[0] for call in copies]
        live_forward = live_calls(self.forward_part, [*proxies_in(result), *residuals, *sources])
        trace.bound_symbols = [*live_forward, *copies, *renaming]
        renamed = {Variable(c.args[0]): c.output for c in renaming}
        forward = AugmentedForward(trace, graph, tuple(residuals), renamed)
        with tracectx(trace):
            prims.python_return(_results(result, inputs), _sorted(forward.saved))
        trace.set_provenance(TraceProvenance("Partition", time.perf_counter_ns() - start))
        calls = live_calls(self.backward_part, proxies_in(self.gradients))
        backward = backward_trace(forward, graph, calls, self.cotangents, self.gradients, order)
        return forward, backward

    def _by_order(self, order: Sequence[BoundSymbol]) -> list[Any]:
        return residuals_of_order(self.program(), order)

    def _by_policy(self) -> tuple[ForwardGraph, list[Any]]:
        """Return the graph with the copies that the forward saves, and what it saves."""
        graph = self.graph
        read = values_read(self.calls_with_cotangent(), self.gradients, graph)
        if self.policy == "min-cut" and (possible := possible_copies(self.joint, graph)):
            graph = graph.with_copies(possible)
        residuals = choose_residuals(graph, read, self.policy)
        copies = [graph.producer[p.name] for p in residuals if p.name in graph.copied]
        if len(copies) < len(graph.copies):
            graph = graph.with_copies(copies)
        return graph, residuals


def split(
    bsyms: Sequence[BoundSymbol], cotangents: Sequence[TensorProxy]
) -> tuple[list[BoundSymbol], list[BoundSymbol]]:
    """Return the calls that do not depend on a cotangent, and those that do, sums of gradients among them."""
    dependent = {c.name for c in cotangents}
    forward_part: list[BoundSymbol] = []
    backward_part: list[BoundSymbol] = []
    for bsym in bsyms:
        is_sum = BoundSymbolTag.SUM_OF_GRADIENTS in bsym.own_tags
        if is_sum or not dependent.isdisjoint([p.name for p in bsym.flat_proxy_args]):
            dependent.update([p.name for p in bsym.flat_proxy_outs])
            backward_part.append(bsym)
        else:
            forward_part.append(bsym)
    return forward_part, backward_part


def values_read(backward_part: Sequence[BoundSymbol], gradients: Any, graph: ForwardGraph) -> list[Any]:
    """Return the values of the forward that the calls of a backward, or its gradients, read.

    Symbolic sizes are among them, since the decomposition of a call may read those of its operands.
    """
    read = {p.name for bsym in backward_part for p in bsym.flat_proxy_args}
    read.update(name for name, value in graph.values.items() if isinstance(value, SymbolicNumber))
    read.update(p.name for p in proxies_in(gradients))
    return [v for name, v in graph.values.items() if name in read]


def _copies(
    trace: TraceCtx, residuals: Sequence[Any], result: Any, overwritten: Set[str]
) -> list[BoundSymbol]:
    """Return calls that copy residuals which are results too, or will be overwritten.

    One that is a result gets another tensor of the same memory: saved as the result itself, it would hold the
    node that holds it. One that will be overwritten gets a clone.
    """
    inputs = {p.name for p in trace.args if is_proxy(p)}
    results = {p.name for p in proxies_in(result)} - inputs
    with tracectx(trace):
        return [
            (prims.clone if value.name in overwritten else prims.shallow_copy).bind(
                value, output=TensorProxy(like=value)
            )
            for value in residuals
            if isinstance(value, TensorProxy) and (value.name in results or value.name in overwritten)
        ]


def _aliases(name: str, inputs: Set[str], producer: Mapping[str, BoundSymbol]) -> bool:
    """Return whether a value is, or may be a view of, one of the inputs."""
    while name not in inputs:
        views = views_of(producer[name]) if name in producer else []
        source = next((view.source.name for view in views if view.output.name == name), None)
        if source is None:
            return False
        name = source
    return True


def _results(result: Any, inputs: Sequence[Any]) -> dict[str, Any]:
    flat = {p.name: p for p in proxies_in(result) if isinstance(p, TensorProxy)}
    return {"output": result, "flat_args": list(inputs), "flat_output": tuple(flat.values())}


def _sorted(saved: Sequence[Any]) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Return the tensors, and the other values."""
    tensors = tuple(v for v in saved if isinstance(v, TensorProxy))
    return tensors, tuple(v for v in saved if not isinstance(v, TensorProxy))


# -- the backward --------------------------------------------------------------------------------------------


def backward_trace(
    forward: AugmentedForward,
    graph: ForwardGraph,
    backward_part: Sequence[BoundSymbol],
    cotangents: Sequence[TensorProxy],
    gradients: tuple[Any, ...],
    order: Sequence[BoundSymbol] | None = None,
) -> TraceCtx:
    """Return the trace ``backward_fn(saved_for_backward, cotangents)`` of ``gradients``.

    Values of ``graph`` that are not saved are computed again, under the name ``bw_<name>`` where the forward
    computes them too: just before their first use, or where ``order`` has their calls.
    """
    start = time.perf_counter_ns()
    trace = from_trace(forward.trace)
    trace.name, trace.tags, trace.input_aliases = "backward_fn", {TraceTag.BACKWARD}, ()
    with tracectx(trace):
        _unpack(trace, *_sorted(forward.saved), tuple(cotangents))
        available = dict(zip(map(Variable, forward.residuals), forward.saved, strict=True))
        computed = {p.name for b in forward.trace.bound_symbols for p in b.flat_proxy_outs}
        rematerialiser = Rematerialiser(trace, graph, available, computed)
        if order is None:
            for bsym in live_calls(backward_part, proxies_in(gradients)):
                trace.record(rematerialiser.with_arguments(bsym))
        else:
            rematerialiser.record_in_order(order, backward_part, gradients)
        prims.python_return(tuple(rematerialiser.value(g) for g in gradients))
    trace.set_provenance(TraceProvenance("Partition", time.perf_counter_ns() - start))
    return trace


def _unpack(
    trace: TraceCtx, tensors: tuple[Any, ...], others: tuple[Any, ...], cotangents: tuple[Any, ...]
) -> None:
    trace.args = [CollectionProxy("saved_for_backward"), CollectionProxy("cotangents")]
    parts = tuple(CollectionProxy(name if trace.is_free(name) else None) for name in ("C0", "C1"))
    for elements, collection in (
        (parts, trace.args[0]),
        (cotangents, trace.args[1]),
        (tensors, parts[0]),
        (others, parts[1]),
    ):
        if elements:
            trace.record(prims.unpack_sequence.bind(collection, len(elements), output=elements))
