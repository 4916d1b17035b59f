"""Which values of the forward are kept for the backward, and which are computed again there.

A value that the backward reads can be kept, at the price of its bytes, or be computed again from others, if
its operator is cheap. The cheapest choice is a minimum cut between what the forward has and what the
backward reads, through an edge of each value's bytes (the formulation of AOTAutograd's partitioner; the
theorem is Ford and Fulkerson's).

    forward has        h ──bytes(h)──▶ h'──∞──▶ a ──bytes(a)──▶ a'──∞──▶  the backward reads a
    (matmul gave h)                        a = gelu(h)               cut at h: keep h, compute gelu again

What may not be kept at all, in the words of the reasons:

- *not on the tape*: a value that requires grad, and that no gradient flows back into (Note [What a rule may
  save] in ``thunder.ops.gradient_rules``);
  What an operator without any gradient hands to its own backward is kept, and second derivatives are refused;
- *a view*: its base is kept instead, which is the same memory;
- *checkpointed*: the program asked for it to be computed again (``torch.utils.checkpoint``).

Such a value is computed again whatever its operator costs.

Note [What may change]
Between forward and backward the caller may write to what it holds: inputs, and results. torch notices writes
to what is saved, but not those through ``.data``. Eager has saved what the program computed from it before.

    y = exp(w * 2)          # eager saves w * 2
    w.data.zero_()          # computed again from w, it would be another number

So what the program computes from memory that the caller holds is kept itself, and not computed again from
there, unless it is a view, which shows the write in eager too. Exceptions are what the caller asked for: a
checkpointed region, and a budget of bytes.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from thunder.autograd.rule_lookup import has_gradient
from thunder.base.errors import InvalidArgument
from thunder.base.tags import OpTags
from thunder.ir.aliasing import DisjointSets, views_of
from thunder.ir.effects import has_effect
from thunder.ir.proxies import AnyProxy, ProxyTag, TensorProxy, is_proxy
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag

__all__ = ["Forward", "choose_residuals", "graph_library", "is_cheap"]

_CHEAP = frozenset({OpTags.POINTWISE_OP, OpTags.CHEAP_TO_RECOMPUTE})


@dataclass
class Forward:
    """The part of a joint program that needs no cotangent, as the choice sees it."""

    inputs: Sequence[Any]
    bsyms: Sequence[BoundSymbol]
    #: names of the program's own values; all others are what rules have computed for themselves
    on_tape: Set[str]
    #: the program's results
    results: Sequence[Any] = ()
    producer: Mapping[str, BoundSymbol] = field(init=False)
    #: name → value, inputs first, then in the order in which they are computed
    values: Mapping[str, Any] = field(init=False)
    input_names: Set[str] = field(init=False)
    #: the names of what lies, or may lie, in memory that the caller holds (Note [What may change])
    held: Set[str] = field(init=False)

    def __post_init__(self) -> None:
        self.producer = {p.name: b for b in self.bsyms for p in b.flat_proxy_outs}
        inputs = {p.name: p for p in self.inputs if is_proxy(p)}
        self.input_names = inputs.keys()
        self.values = {**inputs, **{p.name: p for b in self.bsyms for p in b.flat_proxy_outs}}
        self.held = self._held()

    def _held(self) -> set[str]:
        families = DisjointSets()
        for bsym in self.bsyms:
            for view in views_of(bsym):
                families.union(view.output.name, view.source.name)
        held = {families.find(p.name) for p in (*self.inputs, *self.results) if isinstance(p, TensorProxy)}
        return {name for name in self.values if families.find(name) in held}

    def needed(self, read: Iterable[Any], again: Set[str], kept: Set[str]) -> set[str]:
        """The names of what the backward reads, and of what those ``again`` are computed from, where they are
        not ``kept``.
        """
        found: set[str] = set()
        stack = [v.name for v in read]
        while stack:
            name = stack.pop()
            if name in found:
                continue
            found.add(name)
            if name in again and name not in kept and name not in self.input_names:
                stack += [p.name for p in self.producer[name].flat_proxy_args]
        return found

    def priced_arguments(self, name: str) -> Iterable[str]:
        """What a value is computed from, without leaf tensors: they are there anyway."""
        return (
            p.name for p in self.producer[name].flat_proxy_args if nbytes(p) or p.name not in self.input_names
        )

    def is_keepable(self, value: Any) -> bool:
        """Whether a value may be kept for the backward."""
        if value.name in self.input_names or not isinstance(value, TensorProxy):
            return True
        made_by = self.producer[value.name]
        if has_effect(made_by):
            return True
        if value.requires_grad and value.name not in self.on_tape and not self.is_opaque(value):
            return False
        return not is_view(made_by) and ProxyTag.RECOMPUTE_IN_BACKWARD not in value.tags

    def is_opaque(self, value: Any) -> bool:
        """Whether a value is what an operator without any gradient hands to its own backward.

        Nothing could be gained by computing it again: there is no second derivative, and asking for one has
        to be an error.
        """
        if value.name in self.input_names or value.name in self.on_tape or not value.requires_grad:
            return False
        return not has_gradient(self.producer[value.name])

    def can_recompute(self, value: Any) -> bool:
        """Whether a value may be computed again: it must be, or it is cheap, and what it is computed from
        cannot have changed. No object is made twice.
        """
        if value.name in self.input_names or type(value) is AnyProxy:
            return False
        made_by = self.producer[value.name]
        if has_effect(made_by):
            return False
        if not self.is_keepable(value):
            return True
        changes = value.name in self.on_tape and any(p.name in self.held for p in made_by.flat_proxy_args)
        return not changes and is_cheap(made_by)


def is_view(bsym: BoundSymbol) -> bool:
    """Whether the call's result is memory of an argument."""
    if OpTags.VIEW in bsym.tags:
        return True
    if bsym.sym.is_prim or not bsym.subsymbols:
        return False
    return all(map(is_view, bsym.subsymbols))


def is_cheap(bsym: BoundSymbol) -> bool:
    """Whether a call, or all that it decomposes into, is cheap, and may be run twice."""
    if OpTags.DONT_RECOMPUTE_IN_BACKWARD in bsym.tags:
        return False
    if BoundSymbolTag.RECOMPUTE_IN_BACKWARD in bsym.tags or not _CHEAP.isdisjoint(bsym.sym.tags):
        return True
    return bool(bsym.subsymbols) and not bsym.sym.is_prim and all(map(is_cheap, bsym.subsymbols))


def is_pointwise(bsym: BoundSymbol) -> bool:
    """Whether a call, or all that it decomposes into, computes each element from elements at its place."""
    if OpTags.POINTWISE_OP in bsym.sym.tags:
        return True
    return bool(bsym.subsymbols) and not bsym.sym.is_prim and all(map(is_pointwise, bsym.subsymbols))


def nbytes(value: Any) -> int:
    """The memory of a value (bytes); of a leaf tensor none, for it is there anyway."""
    if not isinstance(value, TensorProxy) or value.declared_leaf:
        return 0
    return int(value.numel()) * value.dtype.itemsize


def choose_residuals(forward: Forward, read: Iterable[Any], policy: str | int) -> list[Any]:
    """The values to keep, for a backward that reads the values ``read``.

    ``policy`` is ``"none"`` (keep what the backward reads), ``"min-cut"``, or the most bytes that may be
    kept: then the largest values are computed again first, until the rest fits. Raises InvalidArgument if it
    cannot fit.
    """
    read = list(read)
    if policy == "none":
        return _cut(forward, read, frozenset())
    cheap = frozenset(p.name for b in forward.bsyms for p in b.flat_proxy_outs if forward.can_recompute(p))
    if policy == "min-cut":
        return _cut(forward, read, cheap)
    assert isinstance(policy, int), "the option is declared with these values"
    return _within(forward, read, cheap, policy)


def _within(forward: Forward, read: list[Any], cheap: frozenset[str], budget: int) -> list[Any]:
    """As few values as possible computed again: cheap ones first, large ones first."""
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
        if _size(_cut(forward, read, frozenset(names[:middle]))) <= budget:
            high = middle
        else:
            low = middle + 1
    kept = _cut(forward, read, frozenset(names[:low]))
    if _size(kept) > budget:
        raise InvalidArgument(
            f"rematerialization={budget}: the backward cannot do with so few bytes",
            found={"least": _size(kept)},
            hint='Give a larger budget, or "min-cut".',
        )
    return kept


def _size(values: Iterable[Any]) -> int:
    return sum(map(nbytes, values))


def _cut(forward: Forward, read: list[Any], recomputable: frozenset[str]) -> list[Any]:
    """The values of a minimum cut that the backward reads or computes others from, in the program's order."""
    again = {
        v.name: v
        for v in forward.values.values()
        if v.name not in forward.input_names and (v.name in recomputable or not forward.is_keepable(v))
    }
    needed = forward.needed(read, again.keys(), frozenset())
    chosen: set[str] = set()
    for part in _parts(forward, needed, again.keys()):
        chosen.update(_cut_part(forward, part, again.keys(), {v.name for v in read}))
    kept = forward.needed(read, forward.values.keys(), chosen) & (chosen | forward.input_names)
    return [v for name, v in forward.values.items() if name in kept]


def graph_library() -> Any:
    """networkx, which costs a tenth of a second to import, when it is first needed."""
    return importlib.import_module("networkx")


def _parts(forward: Forward, needed: Set[str], again: Set[str]) -> Iterable[Set[str]]:
    """The needed values in groups that share no edge. Values that are not computed again end a group, and so
    do inputs that cost nothing.
    """
    networkx = graph_library()
    graph = networkx.Graph()
    graph.add_nodes_from(needed)
    graph.add_edges_from(
        (argument, name) for name in needed & again for argument in forward.priced_arguments(name)
    )
    return networkx.connected_components(graph)  # type: ignore[no-any-return]


def _cut_part(forward: Forward, part: Set[str], again: Set[str], read: Set[str]) -> Set[str]:
    if part.isdisjoint(again):  # a single value, which the forward has
        return part
    networkx = graph_library()
    flow = networkx.DiGraph()
    for name in part:
        value = forward.values[name]
        # one more a value: of two cuts with the same bytes, the one with fewer values
        price = {"capacity": nbytes(value) + 1} if forward.is_keepable(value) else {}
        flow.add_edge((name, "made"), (name, "had"), **price)
        if name in read:
            flow.add_edge((name, "had"), "backward")
        if name not in again:
            flow.add_edge("forward", (name, "made"))
            continue
        for argument in forward.priced_arguments(name):
            flow.add_edge((argument, "had"), (name, "made"))
    if "forward" not in flow or "backward" not in flow:  # all of it comes from constants and leaves
        return set()
    _, (here, _) = networkx.minimum_cut(flow, "forward", "backward")
    return {name for name in part if (name, "made") in here and (name, "had") not in here}
