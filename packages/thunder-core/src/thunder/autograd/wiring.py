"""Which tensors of a program's forward its nodes in torch's graph get, as positions."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass

from thunder.autograd.partition import AugmentedForward
from thunder.autograd.residuals import is_pointwise, is_view
from thunder.autograd.segments import Segment
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import TraceCtx

__all__ = ["Interface", "Present", "Wiring", "originals", "segment_wiring", "watched_inputs", "whole_wiring"]

#: cotangent for each output of a node, whether it is there
Present = tuple[bool, ...]


@dataclass(frozen=True)
class Interface:
    """Which tensors of a forward are results of the function.

    ``results`` are positions in ``flat_output``: what requires grad and is no input. ``hidden`` are positions
    among the saved tensors (Note [Hidden results]).
    """

    results: tuple[int, ...]
    hidden: tuple[int, ...]
    #: the names of the saved tensors
    saved: tuple[str, ...]

    @classmethod
    def of(cls, forward: TraceCtx) -> Interface:
        """The interface of a trace tagged ``AUGMENTED_FORWARD``."""
        returned, (saved, _) = forward.bound_symbols[-1].args
        inputs = {p.name for p in returned["flat_args"] if isinstance(p, TensorProxy)}
        flat = returned["flat_output"]
        results = tuple(i for i, p in enumerate(flat) if p.requires_grad and p.name not in inputs)
        known = inputs | {flat[i].name for i in results}
        hidden = tuple(i for i, p in enumerate(saved) if p.requires_grad and p.name not in known)
        return cls(results, hidden, tuple(p.name for p in saved))


@dataclass(frozen=True)
class Wiring:
    """Where a node finds its tensors, as positions in one list: the inputs of the forward, what it returns
    (``flat_output``), and what it keeps.

    ``usual`` says of each output whether it has a cotangent in a first derivative. ``edges`` are what the
    node gives gradients to, ``given`` the positions of these gradients in what its backward returns.
    ``watched`` are positions among what the node saves: the caller's tensors that eager may have saved views
    of, so that an assignment to ``.data`` could mean one thing there and another here.
    """

    edges: tuple[int, ...]
    given: tuple[int, ...]
    outputs: tuple[int, ...]
    saved: tuple[int, ...]
    watched: tuple[int, ...]
    usual: Present


def originals(forward: AugmentedForward) -> list[TensorProxy]:
    """The tensors that a forward keeps, under their names in the program."""
    return [p for p in forward.kept if isinstance(p, TensorProxy)]


def watched_inputs(forward: AugmentedForward, backward: TraceCtx) -> frozenset[str]:
    """The names of the inputs that the backward reads otherwise than element by element."""
    others = (b for b in backward.bound_symbols if is_view(b) or not is_pointwise(b))
    return frozenset(p.name for b in others for p in b.flat_proxy_args) & forward.values.input_names


def whole_wiring(
    forward: AugmentedForward, interface: Interface, segment: Segment, watched: Set[str]
) -> Wiring:
    """The wiring of the one node of a program, whose backward returns a gradient for every input."""
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
    kept: AugmentedForward,
    segment: Segment,
    hidden: Sequence[TensorProxy],
    watched: Set[str],
) -> Wiring:
    """The wiring of the node of a segment, which keeps what ``kept`` does, and has these hidden results."""
    after = len(forward.trace.args) + len(_returned(forward))
    saved = {p.name: after + i for i, p in enumerate(originals(forward))}
    returned = {p.name: len(forward.trace.args) + i for i, p in enumerate(_returned(forward))}
    inputs = {a.name: i for i, a in enumerate(forward.trace.args)}
    known = {**saved, **returned, **inputs}
    return Wiring(
        tuple(known[p.name] for p in segment.edges),
        tuple(range(len(segment.edges))),
        (*(known[p.name] for p in segment.outputs), *(saved[p.name] for p in hidden)),
        tuple(saved[p.name] for p in originals(kept)),
        tuple(i for i, p in enumerate(originals(kept)) if p.name in watched),
        (True,) * len(segment.outputs) + (False,) * len(hidden),
    )


def _returned(forward: AugmentedForward) -> Sequence[TensorProxy]:
    return forward.trace.bound_symbols[-1].args[0]["flat_output"]  # type: ignore[no-any-return]
