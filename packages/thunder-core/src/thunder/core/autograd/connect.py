"""From a partitioned program to one that runs and that torch can differentiate, as often as it likes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.core import prims
from thunder.core.autograd.find import missing_gradient
from thunder.core.autograd.function import Connected, Interface, Present
from thunder.core.autograd.joint import (
    Tape,
    differentiable_outputs,
    differentiate,
    joint_trace,
    recording,
)
from thunder.core.autograd.partition import AugmentedForward, backward_trace, partition, split
from thunder.core.autograd.residuals import Forward
from thunder.core.errors import UnsupportedProgram
from thunder.core.executor import Executor
from thunder.core.proxies import TensorProxy, is_proxy
from thunder.core.rewrite import eval_trace
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, from_trace, tracectx

__all__ = ["Differentiated", "Lowering", "connected"]


@dataclass(frozen=True)
class Lowering:
    """How traces that are made when they are first needed become functions."""

    executors: Sequence[Executor]
    policy: str | int
    lower: Callable[[TraceCtx], Callable[..., Any]]


@dataclass(frozen=True)
class Differentiated:
    """A program with its tape and its partition."""

    tape: Tape
    outputs: tuple[TensorProxy, ...]
    forward: AugmentedForward
    backward: TraceCtx

    def backward_for(self, interface: Interface, present: Present) -> TraceCtx:
        """The backward that begins with the cotangents that are there, of results and hidden results."""
        originals = {new.name: old.proxy for old, new in self.forward.renamed.items()}
        saved = [p for p in self.forward.saved if isinstance(p, TensorProxy)]
        hidden = [originals.get(saved[i].name, saved[i]) for i in interface.hidden]
        begun = [p for p, there in zip([*self.outputs, *hidden], present, strict=True) if there]
        trace = from_trace(self.forward.trace)
        with tracectx(trace):
            cotangents = [TensorProxy(like=p, requires_grad=True) for p in begun]
            sums: dict[str, TensorProxy] = {}
            with recording(trace) as additions:
                for p, c in zip(begun, cotangents, strict=True):
                    sums[p.name] = c if p.name not in sums else _added(sums[p.name], c)
        inputs = self.forward.trace.args
        steps, gradients = self.tape.backward(trace, sums, inputs)
        early, late = split([*additions, *steps], cotangents)
        body = [b for b in self.tape.forward if b.sym is not prims.python_return]
        values = Forward(inputs, [*body, *early], self.forward.values.on_tape)
        named = AugmentedForward(
            _with_names(self.forward.trace, trace), values, self.forward.kept, self.forward.renamed
        )
        return backward_trace(named, values, late, cotangents, gradients)


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
    one_backward = backward_is_changed or interface not in (None, planned)

    def trace(present: Present) -> TraceCtx:
        if one_backward:
            raise UnsupportedProgram(
                "a transform changed the backward or what is kept for it: there are first derivatives only",
                hint="Leave the transform out for second derivatives.",
            )
        return program.backward_for(planned, present)

    def variant(present: Present) -> Callable[..., Any]:
        return lowering.lower(trace(present))

    def derivative(present: Present) -> Callable[..., Any]:
        for value in program.forward.kept:
            if isinstance(value, TensorProxy) and program.forward.values.is_opaque(value):
                raise missing_gradient(program.forward.values.producer[value.name])
        return _differentiable(trace(present), lowering)

    returned = program.forward.trace.bound_symbols[-1].args[0]["flat_output"]
    results = [returned[i] for i in planned.results] if one_backward else None
    return Connected(interface or planned, forward_fn, backward_fn, variant, derivative, results)


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
    tape = differentiate(trace, lowering.executors)
    joint = joint_trace(tape, outputs)
    cotangents = joint.args[len(trace.args) :]
    forward, backward = partition(joint, cotangents, tape.values, lowering.policy)
    program = Differentiated(tape, outputs, forward, backward)
    return connected(program, lowering.lower(forward.trace), lowering.lower(backward), lowering)
