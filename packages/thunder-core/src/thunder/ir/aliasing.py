"""Values that share memory: views that a call returns, and inputs that overlap.

The views of a call are read off its decomposition: every view in the torch language decomposes into a few
primitives that are tagged ``VIEW`` or ``MAYBE_VIEW``, whose result is a view of their first argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from thunder.base.memory_layout import element_span
from thunder.base.pytree import tree_iter
from thunder.base.structural_ids import RETURN
from thunder.base.tags import VIEW_TAGS, OpTags
from thunder.ir.effects import may_alias
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol


@dataclass(frozen=True, eq=False)
class InputAlias:
    """The layout of an input that shares memory with other inputs.

    The inputs of one group overlap in memory. ``stride`` and ``offset`` are in elements; ``offset`` is
    relative to the start of the storage, and ``storage`` tells the storages of a group apart.
    """

    proxy: TensorProxy
    stride: tuple[int, ...]
    offset: int
    storage: int = 0

    @property
    def size(self) -> tuple[int, ...]:
        """The input's shape."""
        return self.proxy.shape

    @property
    def end(self) -> int:
        """One past the last element of the storage that belongs to the input."""
        return self.offset + element_span(self.size, self.stride)


@dataclass(eq=False, slots=True)  # not frozen: a program has many
class View:
    """An output of a call that is, or may be, a view of the argument ``source``; never changed.

    ``path`` are the primitives from ``source`` to ``output``; empty if the two are one tensor. ``certain`` is
    False for a view that may be a copy.
    """

    output: TensorProxy
    source: TensorProxy
    path: tuple[BoundSymbol, ...]
    certain: bool

    @property
    def is_detached(self) -> bool:
        """Whether no gradient passes: a ``detach``, or the bits as another dtype, is on the path."""
        return any(call.sym.id in ("prims.detach", "prims.bitcast") for call in self.path)


def views_of(bsym: BoundSymbol) -> Sequence[View]:
    """Return the views among a call's outputs, each with the argument that it is a view of."""
    if bsym.all_tags.isdisjoint(VIEW_TAGS):
        return ()
    if not bsym.subsymbols:
        return tuple(_own_view(bsym))
    views: tuple[View, ...] | None = bsym.views
    if views is None:  # many passes ask
        views = bsym.views = tuple(_views_by_parts(bsym))
    return views


def _views_by_parts(bsym: BoundSymbol) -> Iterator[View]:
    """Yield the views of a call, read off its decomposition."""
    origins = {p.name: View(p, p, (), True) for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}
    for sub in bsym.subsymbols:
        for view in views_of(sub):
            origin = origins.get(view.source.name)
            if origin is not None and view.output.name not in origins:
                certain = origin.certain and view.certain
                origins[view.output.name] = View(view.output, origin.source, origin.path + view.path, certain)
    # A composite without the tag may run as one function that copies: its layouts decide.
    is_tagged = OpTags.VIEW in bsym.tags
    for out in bsym.flat_proxy_outs:
        origin = origins.get(out.name) if isinstance(out, TensorProxy) else None
        if origin is not None and origin.path:
            yield View(out, origin.source, origin.path, origin.certain and is_tagged)


def consists_of_views(bsym: BoundSymbol) -> bool:
    """Return whether a call, or each call in it, describes memory in another way, as its operator declares.

    For some layouts it may be a copy.
    """
    if bsym.subsymbols:
        return all(map(consists_of_views, bsym.subsymbols))
    return not bsym.tags.isdisjoint(VIEW_TAGS)


def _own_view(bsym: BoundSymbol) -> Iterator[View]:
    first = bsym.args[0] if bsym.args else None
    if isinstance(first, TensorProxy):
        source: TensorProxy | None = first
    else:
        source = next((x for x in tree_iter(bsym.args) if isinstance(x, TensorProxy)), None)
    if source is None:
        return
    for out in bsym.flat_proxy_outs:
        if isinstance(out, TensorProxy) and out is not source:
            yield View(out, source, (bsym,), OpTags.VIEW in bsym.tags)


@dataclass
class DisjointSets:
    """Disjoint sets of names, as union-find (Tarjan 1975)."""

    _parent: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str:
        """Return the name that represents the set of ``name``."""
        parent = self._parent
        while parent.get(name, name) != name:
            parent[name] = parent.get(parent[name], parent[name])
            name = parent[name]
        return name

    def union(self, a: str, b: str) -> None:
        """Unite the sets of two names."""
        self._parent[self.find(a)] = self.find(b)


def shared_memory(bsyms: Iterable[BoundSymbol], *, certain: bool = False) -> DisjointSets:
    """Return the sets of values that may share memory; with `certain`, of those that do."""
    memory = DisjointSets()
    for bsym in bsyms:
        for view in views_of(bsym):
            if view.certain or not certain:
                memory.union(view.source.name, view.output.name)
    return memory


def written_and_shared(
    bsyms: Iterable[BoundSymbol], written: Sequence[TensorProxy], tensors: Sequence[TensorProxy]
) -> TensorProxy | None:
    """Return the first tensor that a call writes, and that another of its tensors may share memory with.

    ``bsyms`` are the calls before it, ``tensors`` all tensors among its arguments. None if there is none.
    """
    memory = shared_memory(bsyms)
    for i, target in enumerate(written):
        others = [t for t in tensors if t is not target] + list(written[:i])
        if sum(t is target for t in tensors) > 1 or any(
            memory.find(t.name) == memory.find(target.name) for t in others
        ):
            return target
    return None


def escaping(bsyms: Sequence[BoundSymbol]) -> frozenset[str]:
    """Return the names of results, and of values whose memory may be that of a result."""
    names: set[str] = set()
    for bsym in reversed(bsyms):
        is_in = not names.isdisjoint([p.name for p in bsym.flat_proxy_outs])
        if bsym.sym.id == RETURN or (is_in and may_alias(bsym)):
            names.update([p.name for p in bsym.flat_proxy_args])
    return frozenset(names)


def before_first_write(proxies: Iterable[Any]) -> dict[str, TensorProxy]:
    """Return tensors that require grad only since a write, by name, as before the write."""
    return {
        p.name: p.replace(requires_grad=False)
        for p in proxies
        if isinstance(p, TensorProxy) and p.requires_grad_since_write
    }
