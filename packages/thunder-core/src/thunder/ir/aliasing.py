"""Which values share memory: the views that a call returns, and inputs that overlap.

A call's views are read off its decomposition: every view in the torch language decomposes into the few
primitives that are tagged ``VIEW`` or ``MAYBE_VIEW``, each of whose result lies in the memory of its first
argument.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from thunder.base.pytree import tree_flatten_with_dataclass, tree_iter, tree_unflatten
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol

_VIEWS = frozenset({OpTags.VIEW, OpTags.MAYBE_VIEW})


@dataclass(frozen=True, eq=False)
class InputAlias:
    """How an input of a trace lies in memory that it shares with others; ``stride`` and ``offset`` count
    elements.

    The inputs of one group have overlapping memory; ``offset`` counts from the start of the storage.
    """

    proxy: TensorProxy
    stride: tuple[int, ...]
    offset: int

    @property
    def size(self) -> tuple[int, ...]:
        """The input's shape."""
        return self.proxy.shape

    @property
    def end(self) -> int:
        """One past the last element of the storage that belongs to the input."""
        if 0 in self.size:
            return self.offset
        return self.offset + sum((n - 1) * s for n, s in zip(self.size, self.stride, strict=True)) + 1


@dataclass(frozen=True, eq=False)
class View:
    """That ``output`` of a call lies in the memory of its argument ``source``, or may lie there.

    ``path`` are the primitives that lead from the one to the other; empty if the two are one tensor.
    """

    output: TensorProxy
    source: TensorProxy
    path: tuple[BoundSymbol, ...]
    certain: bool


@dataclass
class _Origin:
    source: TensorProxy
    path: tuple[BoundSymbol, ...] = ()
    certain: bool = True


def views_of(bsym: BoundSymbol) -> list[View]:
    """The views among a call's outputs, each with the argument that it is a view of."""
    if not bsym.subsymbols:
        return list(_own_view(bsym))
    origins = {p.name: _Origin(p) for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}
    for sub in bsym.subsymbols:
        for view in views_of(sub):
            origin = origins.get(view.source.name)
            if origin is not None:
                origins.setdefault(
                    view.output.name,
                    _Origin(origin.source, origin.path + view.path, origin.certain and view.certain),
                )
    # A composite that says nothing may be run whole by a function that copies; then layouts have to tell.
    stated = OpTags.VIEW in bsym.tags
    return [
        View(out, o.source, o.path, o.certain and stated)
        for out in bsym.flat_proxy_outs
        if isinstance(out, TensorProxy) and (o := origins.get(out.name)) is not None and o.path
    ]


def _own_view(bsym: BoundSymbol) -> Iterator[View]:
    if bsym.tags.isdisjoint(_VIEWS) or not bsym.args:
        return
    source = next((x for x in tree_iter(bsym.args) if isinstance(x, TensorProxy)), None)
    if source is None:
        return
    for out in bsym.flat_proxy_outs:
        if isinstance(out, TensorProxy) and out is not source:
            yield View(out, source, (bsym,), OpTags.VIEW in bsym.tags)


@dataclass
class Families:
    """Tensors that may share memory, as sets of names: union-find (Tarjan 1975) over a program's views."""

    _parent: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> str:
        """The name that stands for the family of ``name``."""
        parent = self._parent
        while parent.get(name, name) != name:
            parent[name] = parent.get(parent[name], parent[name])
            name = parent[name]
        return name

    def join(self, a: str, b: str) -> None:
        """Makes one family of two."""
        self._parent[self.find(a)] = self.find(b)


def swapped(bsym: BoundSymbol, values: Mapping[str, TensorProxy]) -> BoundSymbol:
    """``bsym`` on other arguments. An output that is an argument itself follows it; the others keep their
    names.

    Unlike ``from_bsym_swap_proxies``, a replacement is final: ``x`` may stand for ``y`` while ``y`` stands
    for ``z``.
    """
    if not any(p.name in values for p in bsym.flat_proxy_args):
        return bsym
    given = {p.name for p in bsym.flat_proxy_args}
    returned = {name: value for name, value in values.items() if name in given}
    return bsym.from_bsym(
        args=replaced(bsym.args, values),
        kwargs=replaced(bsym.kwargs, values),
        output=replaced(bsym.output, returned),
        subsymbols=tuple(swapped(sub, values) for sub in bsym.subsymbols),
    )


def as_made(proxies: Iterable[Any]) -> dict[str, TensorProxy]:
    """Those of the proxies that require grad only since they were written, as they were before."""
    return {
        p.name: p.replace(requires_grad=False)
        for p in proxies
        if isinstance(p, TensorProxy) and p.requires_grad_since_write
    }


def making(bsym: BoundSymbol, values: Mapping[str, TensorProxy]) -> BoundSymbol:
    """``bsym`` with other proxies for what it computes, under the same names."""
    given = {p.name for p in bsym.flat_proxy_args}
    own = {p.name: values[p.name] for p in bsym.flat_proxy_outs if p.name in values and p.name not in given}
    return with_proxies(bsym, own) if own else bsym


def with_proxies(bsym: BoundSymbol, values: Mapping[str, TensorProxy]) -> BoundSymbol:
    """``bsym`` with other proxies wherever these names stand in it, down to its decomposition."""
    return bsym.from_bsym(
        args=replaced(bsym.args, values),
        kwargs=replaced(bsym.kwargs, values),
        output=replaced(bsym.output, values),
        subsymbols=tuple(with_proxies(sub, values) for sub in bsym.subsymbols),
    )


def replaced(tree: Any, values: Mapping[str, TensorProxy]) -> Any:
    """The tree with proxies replaced by name."""
    leaves, spec = tree_flatten_with_dataclass(tree)
    return tree_unflatten([values.get(x.name, x) if isinstance(x, TensorProxy) else x for x in leaves], spec)
