"""The functions of one stage: forward, backward, and the two parts of a backward.

Note [Two parts of a backward]
The statements of a backward on which the gradients of what the stage has received depend are its first part
(B); the rest computes gradients of parameters alone (W), from what the first part keeps for it:

    def backward_fn(saved, cotangents):       def inputs_fn(saved, cotangents):    def weights_fn(kept):
        x, w, g = …                               x, w, g = …                          x, g = kept
        gx = mm(g, w)                    →        gx = mm(g, w)                        gw = mm(t(g), x)
        gw = mm(t(g), x)                          return (gx,), [x, g]                 return (gw,)
        return gx, gw
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.core import prims
from thunder.core.dtypes import to_torch_dtype
from thunder.core.entries import Pipeline, configured_pipeline
from thunder.core.proxies import CollectionProxy
from thunder.core.trace import TraceCtx, TraceProvenance, TraceTag, from_trace, tracectx

from ..stages import add_stages
from .cut import StageCut

__all__ = ["StageCode", "compiled_preparation", "compiled_stage"]


@dataclass(frozen=True)
class StageCode:
    """The functions of a stage, and its traces by name.

    Attributes:
        cut: the stage's program.
        forward: what it reads (received, prepared, shared) → its results, and what it saves.
        backward: what is saved, cotangents of results → gradients of all that is received and prepared; None
            of what needs none. None for a stage without gradients.
        inputs: the first part of the backward: saved, cotangents → gradients of what is received, and what is
            kept; `weights` the second part: kept → gradients of what is prepared. None where they are not
            apart.
        differentiable: the results that have cotangents.
        with_gradients: the names of what is received or prepared and has a gradient.
    """

    cut: StageCut
    forward: Callable[..., tuple[tuple[Any, ...], Any]]
    backward: Callable[..., tuple[Any, ...]] | None
    inputs: Callable[..., tuple[tuple[Any, ...], Any]] | None
    weights: Callable[..., tuple[Any, ...]] | None
    differentiable: tuple[Any, ...]
    with_gradients: frozenset[str]
    traces: dict[str, TraceCtx]


@dataclass
class _Captured:
    """The backward of a program after the partition."""

    backward: TraceCtx | None = None
    traces: list[TraceCtx] = field(default_factory=list)

    def __call__(self, trace: TraceCtx, context: Any) -> TraceCtx:
        if context.is_backward and TraceTag.AUGMENTED_FORWARD not in trace.tags:
            self.backward = trace
        return trace


def compiled_stage(cut: StageCut, context: Any, splits_backward: bool) -> StageCode:
    """Compile the program of a stage, in the compile of the whole program, whose context this is."""
    captured = _Captured()
    pipeline = configured_pipeline((), context.options, context.executors)
    add_stages(pipeline)
    pipeline.add("distributed.pipeline_backward", captured, after="transforms_pre_execution", before="claim")
    assert cut.trace is not None, "the stage has been connected"
    compiled = pipeline.run(
        cut.trace, context.executors, (), context.options, check=context.check, prologue=context.prologue
    )
    traces = {"forward": compiled.traces[-1]}
    if compiled.backward_fn is None:
        run: Callable[..., Any] = compiled.fn
        return StageCode(cut, lambda *args: (run(*args), None), None, None, None, (), frozenset(), traces)
    traces["backward"] = compiled.backward_traces[-1]
    forward: Callable[..., Any] = compiled.fn.forward_fn  # type: ignore[attr-defined]
    backward: Callable[..., Any] = compiled.backward_fn

    def run_forward(*args: Any) -> tuple[tuple[Any, ...], Any]:
        returned, saved = forward(*args)
        return returned["output"], [list(part) for part in saved]

    assert captured.backward is not None, "the program has a backward"
    differentiable = tuple(p for p in cut.results if p.requires_grad)
    (gradients,) = captured.backward.bound_symbols[-1].args
    with_gradients = frozenset(
        p.name for p, g in zip(cut.trace.args, gradients, strict=True) if g is not None
    )
    size = len(cut.received) + len(cut.prepared)

    def run_backward(saved: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(backward(saved, _as_tensors(cotangents, differentiable))[:size])

    def run_inputs(saved: Any, cotangents: Sequence[Any]) -> tuple[Any, ...]:
        gradients, kept = first_fn(saved, _as_tensors(cotangents, differentiable))
        return gradients, kept

    def run_weights(kept: list[Any]) -> tuple[Any, ...]:
        return tuple(second_fn(kept)[: len(cut.prepared)])

    inputs = weights = None
    if splits_backward:
        first, second = split_backward(captured.backward, len(cut.received))
        first_fn, traces["inputs"] = _lowered(first, context)
        second_fn, traces["weights"] = _lowered(second, context)
        inputs, weights = run_inputs, run_weights
    return StageCode(cut, run_forward, run_backward, inputs, weights, differentiable, with_gradients, traces)


def _as_tensors(cotangents: Sequence[Any], results: Sequence[Any]) -> list[Any]:
    """Return cotangents, of which that of a loss may be its weight."""
    return [
        c
        if isinstance(c, torch.Tensor)
        else torch.full((), c, dtype=to_torch_dtype(p.dtype), device=str(p.device))
        for c, p in zip(cotangents, results, strict=True)
    ]


def compiled_preparation(trace: TraceCtx, context: Any) -> Callable[..., tuple[Any, ...]]:
    """Compile what is prepared of parameters: a function that torch differentiates."""
    pipeline = configured_pipeline((), context.options, context.executors)
    add_stages(pipeline)
    compiled = pipeline.run(
        trace, context.executors, (), context.options, check=context.check, prologue=context.prologue
    )
    return compiled.fn


def _lowered(trace: TraceCtx, context: Any) -> tuple[Callable[..., Any], TraceCtx]:
    """Run the stages from the claims on, on a trace that needs no others."""
    stages = configured_pipeline((), context.options, context.executors).stages()
    first = next(i for i, stage in enumerate(stages) if stage.name == "claim")
    late = Pipeline(stage for stage in stages[first:] if stage.name != "below_autograd")
    compiled = late.run(
        trace, context.executors, (), context.options, check=context.check, prologue=context.prologue
    )
    return compiled.fn, compiled.traces[-1]


def split_backward(trace: TraceCtx, received: int) -> tuple[TraceCtx, TraceCtx]:
    """Return the two parts of a backward (Note [Two parts of a backward]).

    Its first `received` gradients are those of what the stage has received.
    """
    *body, end = trace.bound_symbols
    (gradients,) = end.args
    of_inputs, of_weights = gradients[:received], gradients[received:]
    unpacking = [b for b in body if b.sym.id == prims.unpack_sequence.id]
    needed = {p.name for p in of_inputs if p is not None}
    first, second = [], []
    for bsym in reversed(body[len(unpacking) :]):
        if any(p.name in needed for p in bsym.flat_proxy_outs):
            first.append(bsym)
            needed.update(p.name for p in bsym.flat_proxy_args)
        else:
            second.append(bsym)
    own = {p.name for b in second for p in b.flat_proxy_outs}
    read = {p.name: p for b in reversed(second) for p in b.flat_proxy_args}
    read.update({p.name: p for p in of_weights if p is not None})
    kept = tuple(p for name, p in read.items() if name not in own)
    inputs = from_trace(trace)
    inputs.name, inputs.bound_symbols = "inputs_fn", [*unpacking, *reversed(first)]
    with tracectx(inputs):
        prims.python_return(tuple(of_inputs), list(kept))
    weights = from_trace(trace)
    weights.name, weights.bound_symbols = "weights_fn", []
    with tracectx(weights):
        collection = CollectionProxy("kept")
        weights.args = [collection]
        if kept:
            weights.record(prims.unpack_sequence.bind(collection, len(kept), output=kept))
        for bsym in reversed(second):
            weights.record(bsym)
        prims.python_return(tuple(of_weights))
    for part in (inputs, weights):
        part.set_provenance(TraceProvenance("Parts of a backward"))
    return inputs, weights
