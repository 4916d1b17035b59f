"""A joint trace as two: the forward, which keeps values, and the backward, which gets them.

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

from thunder.autograd.residuals import Forward, choose_residuals
from thunder.ir.aliasing import views_of
from thunder.ir.effects import has_effect
from thunder.ir.proxies import CollectionProxy, TensorProxy, Variable, is_proxy
from thunder.ir.symbol import BoundSymbol, proxies_in
from thunder.ir.trace import TraceCtx, TraceProvenance, TraceTag, from_trace, tracectx
from thunder.ops import prims

__all__ = ["AugmentedForward", "backward_trace", "partition", "read_by", "split"]


@dataclass(frozen=True)
class AugmentedForward:
    """The forward of a partitioned program, and what its backwards have to know of it.

    ``values`` are all values that need no cotangent, ``kept`` those that the backward gets, under their names
    in the forward; ``renamed`` are the names in the backward of those that are
    results of the program too, or will be overwritten.
    """

    trace: TraceCtx
    values: Forward
    kept: tuple[Any, ...]
    renamed: Mapping[Variable, Any]

    @property
    def saved(self) -> tuple[Any, ...]:
        """What is kept, under its names in the backward."""
        return tuple(self.renamed.get(Variable(p), p) for p in self.kept)

    def keeping(self, names: Set[str]) -> AugmentedForward:
        """The same forward, as one that keeps no tensors but those of these names.

        What is no tensor stays: every node gets all of it.
        """
        return replace(
            self, kept=tuple(p for p in self.kept if p.name in names or not isinstance(p, TensorProxy))
        )


def partition(
    joint: TraceCtx,
    cotangents: Sequence[TensorProxy],
    on_tape: Iterable[str],
    policy: str | int,
    written: Set[str] = frozenset(),
    inner: Iterable[TensorProxy] = (),
) -> tuple[AugmentedForward, TraceCtx]:
    """Splits ``joint``, whose last arguments are ``cotangents``, into the forward and the backward.

    ``on_tape`` are the names of the program's own values, ``policy`` says what is kept (see
    :func:`~thunder.autograd.residuals.choose_residuals`), ``written`` are the names of inputs to whose
    memory the program writes behind the forward. ``inner`` are values that leave the forward too, for they
    connect one node with another (Note [Segments]).
    """
    start = time.perf_counter_ns()
    inputs = joint.args[: len(joint.args) - len(cotangents)]
    result, gradients = joint.bound_symbols[-1].args
    early, late = split(joint.bound_symbols[:-1], cotangents)
    values = Forward(inputs, early, frozenset(on_tape), list(proxies_in(result)))
    late = _computing(late, proxies_in(gradients))
    kept = choose_residuals(values, read_by(late, gradients, values), policy)
    known = {p.name for p in (*kept, *proxies_in(result))}
    kept += [p for p in inner if p.name not in known]
    trace = from_trace(joint)
    trace.args, trace.name = list(inputs), "computation"
    trace.tags.add(TraceTag.AUGMENTED_FORWARD)
    trace.grad_enabled = False  # torch's autograd runs it where gradients are off
    overwritten = {v.name for v in kept if _lies_in(v.name, values.producer, written)}
    copies = _copies(trace, kept, result, overwritten)
    trace.bound_symbols = [*_computing(early, [*proxies_in(result), *kept]), *copies]
    forward = AugmentedForward(trace, values, tuple(kept), {Variable(c.args[0]): c.output for c in copies})
    with tracectx(trace):
        prims.python_return(_results(result, inputs), _sorted(forward.saved))
    trace.set_provenance(TraceProvenance("Partition", time.perf_counter_ns() - start))
    return forward, backward_trace(forward, values, late, cotangents, gradients)


def split(
    bsyms: Sequence[BoundSymbol], cotangents: Sequence[TensorProxy]
) -> tuple[list[BoundSymbol], list[BoundSymbol]]:
    """The calls that need no cotangent, and those that do."""
    dependent = {c.name for c in cotangents}
    early: list[BoundSymbol] = []
    late: list[BoundSymbol] = []
    for bsym in bsyms:
        if any(p.name in dependent for p in bsym.flat_proxy_args):
            dependent.update(p.name for p in bsym.flat_proxy_outs)
            late.append(bsym)
        else:
            early.append(bsym)
    return early, late


def read_by(late: Sequence[BoundSymbol], gradients: Any, values: Forward) -> list[Any]:
    """The values that need no cotangent, and that the calls that do, or the gradients, read."""
    read = {p.name for bsym in late for p in bsym.flat_proxy_args}
    read.update(p.name for p in proxies_in(gradients))
    return [v for name, v in values.values.items() if name in read]


def _computing(bsyms: Sequence[BoundSymbol], results: Iterable[Any]) -> list[BoundSymbol]:
    """Those of the calls that compute the results, or have an effect."""
    needed, kept = {p.name for p in results}, []
    for bsym in reversed(bsyms):
        if has_effect(bsym) or any(p.name in needed for p in bsym.flat_proxy_outs):
            needed.update(p.name for p in bsym.flat_proxy_args)
            kept.append(bsym)
    kept.reverse()
    return kept


def _copies(trace: TraceCtx, kept: Sequence[Any], result: Any, written: Set[str]) -> list[BoundSymbol]:
    """Calls that give kept values a name of their own: those that are results too (A14), and, with memory of
    its own, what the program will overwrite.
    """
    inputs = {p.name for p in trace.args if is_proxy(p)}
    results = {p.name for p in proxies_in(result)} - inputs
    with tracectx(trace):
        return [
            (prims.clone if value.name in written else prims.shallow_copy).bind(
                value, output=TensorProxy(like=value)
            )
            for value in kept
            if isinstance(value, TensorProxy) and (value.name in results or value.name in written)
        ]


def _lies_in(name: str, producer: Mapping[str, BoundSymbol], memories: Set[str]) -> bool:
    """Whether a value is, or may be a view of, one of some inputs."""
    while name not in memories:
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
    """The tensors, and the other values."""
    tensors = tuple(v for v in saved if isinstance(v, TensorProxy))
    return tensors, tuple(v for v in saved if not isinstance(v, TensorProxy))


# -- the backward --------------------------------------------------------------------------------------------


def backward_trace(
    forward: AugmentedForward,
    values: Forward,
    late: Sequence[BoundSymbol],
    cotangents: Sequence[TensorProxy],
    gradients: tuple[Any, ...],
) -> TraceCtx:
    """The trace ``backward_fn(saved_for_backward, cotangents)`` of ``gradients``, from what is kept.

    ``values`` that are not kept are computed again, as late as they can be; under the name ``bw_<name>``
    where the forward computes them too.
    """
    start = time.perf_counter_ns()
    trace = from_trace(forward.trace)
    trace.name, trace.tags, trace.input_aliases = "backward_fn", {TraceTag.BACKWARD}, ()
    with tracectx(trace):
        _unpack(trace, *_sorted(forward.saved), tuple(cotangents))
        recomputing = _Recomputing(trace, forward, values)
        for bsym in _computing(late, proxies_in(gradients)):
            trace.record(recomputing.ready(bsym))
        prims.python_return(tuple(recomputing.value(g) for g in gradients))
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


class _Recomputing:
    """Gives the calls of a backward their arguments: kept, or computed again before the first use."""

    def __init__(self, trace: TraceCtx, forward: AugmentedForward, values: Forward) -> None:
        self.trace, self.values = trace, values
        self.taken = {p.name for b in forward.trace.bound_symbols for p in b.flat_proxy_outs}
        self.known = {Variable(p): saved for p, saved in zip(forward.kept, forward.saved, strict=True)}

    def ready(self, bsym: BoundSymbol) -> BoundSymbol:
        """The call with arguments that are there; what they lack is recorded first."""
        swap = {}
        for p in bsym.flat_proxy_args:
            value = self.value(p)
            if value is not p:
                swap[Variable(p)] = value
        return bsym.from_bsym_swap_proxies(swap, skip_output=True) if swap else bsym

    def value(self, p: Any) -> Any:
        """A value under the name that it has in the backward."""
        if not is_proxy(p) or p.name not in self.values.values:
            return p
        if Variable(p) not in self.known:
            call = self.ready(self.values.producer[p.name])
            swap = {Variable(o): self._renamed(o) for o in call.flat_proxy_outs}
            for old, new in swap.items():
                self.known.setdefault(old, new)  # what is kept stays what it is
            again = {v: new for v, new in swap.items() if new.name != v.name}
            self.trace.record(call.from_bsym_swap_proxies(again))
        return self.known[Variable(p)]

    def _renamed(self, p: Any) -> Any:
        if p.name not in self.taken:
            return p
        return p.replace_name(f"bw_{p.name}", disambiguate=True)
