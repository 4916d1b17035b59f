"""The tensors of each node in torch's graph, as positions in the forward's tensors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass

from thunder.autograd.partition import AugmentedForward
from thunder.autograd.residuals import is_view
from thunder.autograd.segments import Segment
from thunder.ir.aliasing import views_of
from thunder.ir.ending_inputs import is_pointwise
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx

__all__ = [
    "Interface",
    "Present",
    "Wiring",
    "bases_among_results",
    "residual_tensors",
    "segment_wiring",
    "watched_inputs",
    "whole_wiring",
]

#: for each output of a node, whether it has a cotangent
Present = tuple[bool, ...]


@dataclass(frozen=True)
class Interface:
    """The tensors of a forward that are results of the function for torch's autograd.

    ``results`` are positions in ``flat_output`` of what requires grad and is not an input. ``hidden`` are
    positions among the saved tensors (Note [Hidden results]).
    """

    results: tuple[int, ...]
    hidden: tuple[int, ...]
    #: the names of the saved tensors
    saved: tuple[str, ...]

    @classmethod
    def of(cls, forward: TraceCtx) -> Interface:
        """Return the interface of a trace tagged ``AUGMENTED_FORWARD``."""
        returned, (saved, _) = forward.bound_symbols[-1].args
        inputs = {p.name for p in returned["flat_args"] if isinstance(p, TensorProxy)}
        flat = returned["flat_output"]
        results = tuple(i for i, p in enumerate(flat) if p.requires_grad and p.name not in inputs)
        visible = inputs | {flat[i].name for i in results}
        hidden = tuple(i for i, p in enumerate(saved) if p.requires_grad and p.name not in visible)
        return cls(results, hidden, tuple(p.name for p in saved))


@dataclass(frozen=True)
class Wiring:
    """The tensors of a node, as positions in one list.

    The list has the inputs of the forward, its results (``flat_output``), and the saved tensors. The node
    adds to the gradients of ``edges``; ``gradients`` are the positions of these gradients in what its
    backward returns. ``usual`` says for each of ``outputs`` whether it has a cotangent in a first derivative.
    ``watched`` are positions among what the node saves: tensors of the caller of which eager may have saved
    views, so that an assignment to ``.data`` could have another effect in eager than here.
    """

    edges: tuple[int, ...]
    gradients: tuple[int, ...]
    outputs: tuple[int, ...]
    saved: tuple[int, ...]
    watched: tuple[int, ...]
    usual: Present


def residual_tensors(forward: AugmentedForward) -> list[TensorProxy]:
    """Return the tensors that a forward saves, under their names in the program."""
    return [p for p in forward.residuals if isinstance(p, TensorProxy)]


def bases_among_results(forward: AugmentedForward, program: Iterable[BoundSymbol]) -> tuple[int, ...]:
    """Return the positions of the results that are no inputs, and by their operators no views."""
    others = {view.output.name for bsym in program for view in views_of(bsym)} | forward.graph.input_names
    return tuple(i for i, p in enumerate(_returned(forward)) if p.name not in others)


def watched_inputs(forward: AugmentedForward, backward: TraceCtx) -> frozenset[str]:
    """Return the names of the inputs that calls of the backward read other than elementwise."""
    others = (b for b in backward.bound_symbols if is_view(b) or not is_pointwise(b))
    return frozenset(p.name for b in others for p in b.flat_proxy_args) & forward.graph.input_names


def whole_wiring(
    forward: AugmentedForward, interface: Interface, segment: Segment, watched: Set[str]
) -> Wiring:
    """Return the wiring of a program's only node, whose backward has all gradients."""
    first, returned = len(forward.trace.args), _returned(forward)
    after = first + len(returned)
    edges = {p.name for p in segment.edges}
    inputs = tuple(i for i, a in enumerate(forward.trace.args) if a.name in edges)
    return Wiring(
        inputs,
        inputs,
        (*(first + i for i in interface.results), *(after + i for i in interface.hidden)),
        tuple(range(after, after + len(interface.saved))),
        tuple(i for i, name in enumerate(interface.saved) if name in watched),
        (True,) * len(interface.results) + (False,) * len(interface.hidden),
    )


def segment_wiring(
    forward: AugmentedForward,
    segment_forward: AugmentedForward,
    segment: Segment,
    hidden: Sequence[TensorProxy],
    watched: Set[str],
) -> Wiring:
    """Return the wiring of the node of a segment with these hidden results.

    The node saves the residuals of ``segment_forward``, which are some of those of ``forward``.
    """
    after = len(forward.trace.args) + len(_returned(forward))
    saved = {p.name: after + i for i, p in enumerate(residual_tensors(forward))}
    returned = {p.name: len(forward.trace.args) + i for i, p in enumerate(_returned(forward))}
    inputs = {a.name: i for i, a in enumerate(forward.trace.args)}
    position = {**saved, **returned, **inputs}
    residuals = residual_tensors(segment_forward)
    return Wiring(
        tuple(position[p.name] for p in segment.edges),
        tuple(range(len(segment.edges))),
        (*(position[p.name] for p in segment.outputs), *(saved[p.name] for p in hidden)),
        tuple(saved[p.name] for p in residuals),
        tuple(i for i, p in enumerate(residuals) if p.name in watched),
        (True,) * len(segment.outputs) + (False,) * len(hidden),
    )


def _returned(forward: AugmentedForward) -> Sequence[TensorProxy]:
    return forward.trace.bound_symbols[-1].args[0]["flat_output"]  # type: ignore[no-any-return]
