"""The choice of residuals: which values are saved, and which the backward computes again.

A value that the backward reads can be saved, at the price of its bytes, or be computed again from others, if
its operator is cheap. The cheapest choice is a minimum cut between what the forward has and what the backward
reads, through an edge of each value's bytes (the formulation of AOTAutograd's partitioner; the theorem is
Ford and Fulkerson's).

    forward has        h ──bytes(h)──▶ h'──∞──▶ a ──bytes(a)──▶ a'──∞──▶  the backward reads a
    (matmul gave h)                        a = gelu(h)               cut at h: save h, compute gelu again

Some values may not be saved at all, and are computed again whatever their operators cost:

- a value that requires grad but is not *differentiable*: no gradient flows back into it (Note [What a rule
  may save] in ``thunder.ops.gradient_rules``). An exception are results of an operator without gradient,
  which are saved; their second derivatives are refused;
- a *view*: its base is saved, which is the same memory;
- a *checkpointed* value: the program wants it to be computed again (``torch.utils.checkpoint``).

Note [What may change]
Between forward and backward the caller may write to tensors that it holds: inputs and results. torch notices
writes to saved tensors, but not those through ``.data``. Eager has saved what the program computed before.

    y = exp(w * 2)          # eager saves w * 2
    w.data.zero_()          # computed again from w, it would be another number

So values that the program computes from memory that the caller holds are saved, and not computed again,
except views, which show the write in eager too. Checkpointed regions and a budget of bytes take precedence.
They are computed again from copies where these take much less memory (``thunder.autograd.saved_copies``).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from thunder.autograd.minimum_cut import FlowGraph, connected_components
from thunder.autograd.rule_lookup import has_gradient
from thunder.base.errors import InvalidArgument
from thunder.base.tags import OpTags
from thunder.ir.aliasing import shared_memory
from thunder.ir.effects import has_effect
from thunder.ir.proxies import AnyProxy, ProxyTag, TensorProxy, is_proxy
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag
from thunder.ir.traced_sizes import tensor_bytes

__all__ = ["ForwardGraph", "choose_residuals", "computed_by", "is_cheap"]

_CHEAP = frozenset({OpTags.POINTWISE_OP, OpTags.CHEAP_TO_RECOMPUTE})


def computed_by(bsym: BoundSymbol) -> list[Any]:
    """Return the proxies that a call computes: its outputs, without arguments that it returns as they are.

    (t4, t2) = broadcast_tensors(t1, t2)   →   [t4]
    """
    arguments = {p.name for p in bsym.flat_proxy_args}
    return [p for p in bsym.flat_proxy_outs if p.name not in arguments]


@dataclass
class ForwardGraph:
    """The calls of a joint program that need no cotangent, with the producers of their values."""

    inputs: Sequence[Any]
    bsyms: Sequence[BoundSymbol]
    #: the names of the program's values; the others are what gradient rules have computed for themselves
    differentiable: Set[str]
    #: the program's results
    results: Sequence[Any] = ()
    #: where the backward runs in the same call: the names of the values that are alive until then, saved or
    #: not; nothing that it reads changes between
    alive: Set[str] | None = None
    #: name of a value in memory that the caller holds → the call that copies it (Note [Saved copies])
    copies: Mapping[str, BoundSymbol] = field(default_factory=dict)
    producer: Mapping[str, BoundSymbol] = field(init=False)
    #: name → value, inputs first, then in the order in which they are computed
    values: Mapping[str, Any] = field(init=False)
    input_names: Set[str] = field(init=False)
    #: the names of values in memory that the caller holds, or may hold (Note [What may change])
    held_by_caller: Set[str] = field(init=False)
    #: the names of the copies
    copied: Set[str] = field(init=False, default=frozenset())

    def __post_init__(self) -> None:
        self.producer = {p.name: b for b in self.bsyms for p in computed_by(b)}
        inputs = {p.name: p for p in self.inputs if is_proxy(p)}
        self.input_names = inputs.keys()
        self.values = {**inputs, **{p.name: p for b in self.bsyms for p in b.flat_proxy_outs}}
        self.held_by_caller = self._held_by_caller() if self.alive is None else frozenset()
        if self.copies:
            self._read_copies()

    def _read_copies(self) -> None:
        """Let the calls whose results may be saved read copies instead of what the caller holds."""
        copies = {b.output.name: b for b in self.copies.values()}
        self.copied = copies.keys()
        self.values = {**self.values, **{name: b.output for name, b in copies.items()}}
        values = {name: b.output for name, b in self.copies.items()}
        read = {
            name: substitute_operands(bsym, values)
            for name, bsym in self.producer.items()
            if not self.copies.keys().isdisjoint(p.name for p in bsym.flat_proxy_args)
            and name in self.differentiable
            and self.can_save(self.values[name])
        }
        self.producer = {**self.producer, **read, **copies}

    def with_copies(self, copies: Iterable[BoundSymbol]) -> ForwardGraph:
        """Return the graph with calls that copy values which the caller holds."""
        names = {b.args[0].name: b for b in copies}
        differentiable = self.differentiable | {b.output.name for b in names.values()}
        return replace(self, copies=names, differentiable=differentiable)

    def source(self, value: Any) -> Any:
        """Return the value of which a value is the copy, else the value."""
        return self.producer[value.name].args[0] if value.name in self.copied else value

    def _held_by_caller(self) -> set[str]:
        memories = shared_memory(self.bsyms)
        held = {memories.find(p.name) for p in (*self.inputs, *self.results) if isinstance(p, TensorProxy)}
        return {name for name in self.values if memories.find(name) in held}

    def needed(self, read: Iterable[Any], recomputed: Set[str], saved: Set[str]) -> set[str]:
        """Return the names of the values ``read``, and of those that they are computed again from.

        Values are computed again if they are in ``recomputed`` and not in ``saved``.
        """
        names: set[str] = set()
        stack = [v.name for v in read]
        while stack:
            name = stack.pop()
            if name in names:
                continue
            names.add(name)
            if name in recomputed and name not in saved and name not in self.input_names:
                stack += [p.name for p in self.producer[name].flat_proxy_args]
        return names

    def priced_arguments(self, name: str) -> Iterable[str]:
        """Return the names of the arguments of a value's call that cost bytes to save."""
        return (
            p.name
            for p in self.producer[name].flat_proxy_args
            if self.price(p) or p.name not in self.input_names
        )

    def price(self, value: Any) -> int:
        """Return what saving a value costs in the choice of residuals: bytes, and more for a copy."""
        if self.alive is not None and value.name in self.alive:
            return 0
        return copy_price(value) if value.name in self.copied else nbytes(value)

    def can_save(self, value: Any) -> bool:
        """Return whether a value may be saved for the backward."""
        if value.name in self.input_names or not isinstance(value, TensorProxy):
            return True
        producer = self.producer[value.name]
        if has_effect(producer):
            return True
        if value.requires_grad and value.name not in self.differentiable and not self.is_opaque(value):
            return False
        return not is_view(producer) and ProxyTag.RECOMPUTE_IN_BACKWARD not in value.tags

    def is_opaque(self, value: Any) -> bool:
        """Return whether a value is what an operator without gradient saves for its own backward.

        It is not computed again: there is no second derivative, and one that is needed is an error.
        """
        if value.name in self.input_names or value.name in self.differentiable or not value.requires_grad:
            return False
        return not has_gradient(self.producer[value.name])

    def can_recompute(self, value: Any) -> bool:
        """Return whether a value may be computed again.

        Either it may not be saved, or its call is cheap and its arguments cannot have changed. Values that
        are neither tensors nor numbers are not: a second object would be another one.
        """
        if value.name in self.input_names or type(value) is AnyProxy:
            return False
        producer = self.producer[value.name]
        if has_effect(producer):
            return False
        if not self.can_save(value):
            return True
        may_change = value.name in self.differentiable and any(
            p.name in self.held_by_caller for p in producer.flat_proxy_args
        )
        return not may_change and is_cheap(producer)


def is_view(bsym: BoundSymbol) -> bool:
    """Return whether the call's result is memory of an argument."""
    if OpTags.VIEW in bsym.tags:
        return True
    if bsym.sym.is_prim or not bsym.subsymbols:
        return False
    return all(map(is_view, bsym.subsymbols))


def is_cheap(bsym: BoundSymbol) -> bool:
    """Return whether a call, or each call that it decomposes into, is cheap and may run twice."""
    if OpTags.DONT_RECOMPUTE_IN_BACKWARD in bsym.tags:
        return False
    if BoundSymbolTag.RECOMPUTE_IN_BACKWARD in bsym.tags or not _CHEAP.isdisjoint(bsym.sym.tags):
        return True
    return bool(bsym.subsymbols) and not bsym.sym.is_prim and all(map(is_cheap, bsym.subsymbols))


def nbytes(value: Any) -> int:
    """Return the memory that saving a value costs (bytes): 0 for a leaf tensor."""
    if not isinstance(value, TensorProxy) or value.declared_leaf:
        return 0
    return tensor_bytes(value)


def copy_price(value: TensorProxy) -> int:
    """Return what saving a copy costs in the choice of residuals.

    It is more than its bytes, since each forward runs a kernel for it.
    """
    return 2 * nbytes(value.replace(declared_leaf=None)) + 4096


def choose_residuals(forward: ForwardGraph, read: Iterable[Any], policy: str | int) -> list[Any]:
    """Return the values to save for a backward that reads the values ``read``.

    ``policy`` is ``"none"`` (save what the backward reads), ``"min-cut"``, or a budget, the most bytes that
    may be saved: then the largest values are computed again first, until the rest fits. Raises
    InvalidArgument if it cannot fit.
    """
    read = list(read)
    if policy == "none":
        return _cut(forward, read, frozenset())
    cheap = frozenset(p.name for b in forward.bsyms for p in b.flat_proxy_outs if forward.can_recompute(p))
    if policy == "min-cut":
        return _cut(forward, read, cheap)
    assert isinstance(policy, int), "the option is declared with these values"
    return _within_budget(forward, read, cheap, policy)


def _within_budget(forward: ForwardGraph, read: list[Any], cheap: frozenset[str], budget: int) -> list[Any]:
    """Return the values to save when as few as possible are computed again.

    Cheap and large values are computed again first.
    """
    candidates = [
        p
        for b in forward.bsyms
        if not has_effect(b) and OpTags.DONT_RECOMPUTE_IN_BACKWARD not in b.tags
        for p in b.flat_proxy_outs
    ]
    candidates.sort(key=lambda p: (p.name not in cheap, -nbytes(p)))
    names = [p.name for p in candidates]
    low, high = 0, len(names)
    while low < high:
        middle = (low + high) // 2
        if _total_bytes(_cut(forward, read, frozenset(names[:middle]))) <= budget:
            high = middle
        else:
            low = middle + 1
    saved = _cut(forward, read, frozenset(names[:low]))
    if _total_bytes(saved) > budget:
        raise InvalidArgument(
            f"rematerialization={budget}: the backward needs more saved bytes than that",
            found={"least": _total_bytes(saved)},
            hint='Give a larger budget, or "min-cut".',
        )
    return saved


def _total_bytes(values: Iterable[Any]) -> int:
    return sum(map(nbytes, values))


def _cut(forward: ForwardGraph, read: list[Any], recomputable: frozenset[str]) -> list[Any]:
    """Return the saved values of a minimum cut, in the program's order."""
    recomputed = {
        v.name: v
        for v in forward.values.values()
        if v.name not in forward.input_names and (v.name in recomputable or not forward.can_save(v))
    }
    needed = forward.needed(read, recomputed.keys(), frozenset())
    chosen: set[str] = set()
    read_names = {v.name for v in read}
    for component in _components(forward, needed, recomputed.keys()):
        chosen.update(_cut_component(forward, component, recomputed.keys(), read_names))
    saved = forward.needed(read, forward.values.keys(), chosen) & (chosen | forward.input_names)
    return [v for name, v in forward.values.items() if name in saved]


def _components(forward: ForwardGraph, needed: Set[str], recomputed: Set[str]) -> Iterable[Set[str]]:
    """Return the needed values in connected components.

    Edges end at values that are not computed again, and at inputs that cost nothing.
    """
    edges = ((a, name) for name in needed & recomputed for a in forward.priced_arguments(name))
    return connected_components(needed, edges)


def _cut_component(
    forward: ForwardGraph, component: Set[str], recomputed: Set[str], read: Set[str]
) -> Set[str]:
    """Return the names of the saved values of one component.

    Each value is an edge from its node ``computed`` to its node ``available``, with its bytes as capacity.
    """
    if recomputed.isdisjoint(component):  # a single value, which the forward has
        return component
    flow = FlowGraph()
    for name in component:
        value = forward.values[name]
        # one more for each value: of two cuts with the same bytes, the one with fewer values
        flow.add(
            (name, "computed"),
            (name, "available"),
            forward.price(value) + 1 if forward.can_save(value) else math.inf,
        )
        if name in read:
            flow.add((name, "available"), "backward")
        if name not in recomputed:
            flow.add("forward", (name, "computed"))
            continue
        for argument in forward.priced_arguments(name):
            flow.add((argument, "available"), (name, "computed"))
    if "forward" not in flow.edges or "backward" not in flow.edges:  # of constants and leaves
        return set()
    source_side = flow.cut("forward", "backward")
    return {
        name
        for name in component
        if (name, "computed") in source_side and (name, "available") not in source_side
    }
