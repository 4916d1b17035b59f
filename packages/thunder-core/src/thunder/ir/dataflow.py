"""Producers and consumers of the values of a trace, and the dependency graph of its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from thunder.base.structural_ids import CLEAR, COMMENT, DEL, RELEASES, RETURN, STRUCTURAL
from thunder.base.tags import OpTags
from thunder.ir.aliasing import DisjointSets
from thunder.ir.effects import COPY, is_ordered, may_alias, written_tensors
from thunder.ir.proxies import CollectionProxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx

__all__ = [
    "TOPOSORT_ORDER",
    "Node",
    "ProxyDict",
    "bsym_list_to_dag",
    "consumers",
    "find_producer_symbols",
    "producers",
    "producers_and_consumers",
    "toposort_bsym_dag",
]

V = TypeVar("V")


class Named(Protocol):
    """A proxy or a variable."""

    name: str


class ProxyDict(Generic[V]):
    """A dictionary whose keys are proxies (or variables), compared by name."""

    def __init__(self) -> None:
        self._items: dict[str, V] = {}

    def __setitem__(self, key: Named, value: V) -> None:
        self._items[key.name] = value

    def __getitem__(self, key: Named) -> V:
        return self._items[key.name]

    def __delitem__(self, key: Named) -> None:
        del self._items[key.name]

    def __contains__(self, key: Named) -> bool:
        return key.name in self._items

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def get(self, key: Named, default: Any = None) -> Any:
        """Return the value of a proxy, or ``default``."""
        return self._items.get(key.name, default)

    def get_by_name(self, name: str) -> V:
        """Return the value of the proxy called ``name``; raises KeyError."""
        return self._items[name]

    def append(self, key: Named, value: Any) -> None:
        """Append to the list under ``key``, which is created if it is missing."""
        self._items.setdefault(key.name, []).append(value)  # type: ignore[arg-type,attr-defined]

    def __repr__(self) -> str:
        return f"ProxyDict({self._items!r})"


def _bsyms(trace_or_bsyms: TraceCtx | Iterable[BoundSymbol]) -> Iterable[BoundSymbol]:
    return trace_or_bsyms.bound_symbols if isinstance(trace_or_bsyms, TraceCtx) else trace_or_bsyms


def producers(trace_or_bsyms: TraceCtx | Iterable[BoundSymbol]) -> ProxyDict[BoundSymbol]:
    """Return, for each proxy, the first top-level bound symbol that computes it.

    A bound symbol that outputs one of its arguments does not compute it.
    """
    producer_of: ProxyDict[BoundSymbol] = ProxyDict()
    for bsym in _bsyms(trace_or_bsyms):
        arguments = {p.name for p in bsym.flat_proxy_args}
        for p in bsym.flat_proxy_outs:
            if p.name not in arguments and p not in producer_of:
                producer_of[p] = bsym
    return producer_of


def consumers(trace_or_bsyms: TraceCtx | Iterable[BoundSymbol]) -> ProxyDict[list[BoundSymbol]]:
    """Return, for each proxy, the top-level bound symbols that take it; comments excepted.

    Each bound symbol is in a list once.
    """
    consumers_of: ProxyDict[list[BoundSymbol]] = ProxyDict()
    for bsym in _bsyms(trace_or_bsyms):
        if bsym.sym.id != COMMENT:
            for p in {p.name: p for p in bsym.flat_proxy_args}.values():
                consumers_of.append(p, bsym)
    return consumers_of


def producers_and_consumers(
    trace_or_bsyms: TraceCtx | Iterable[BoundSymbol],
) -> tuple[ProxyDict[BoundSymbol], ProxyDict[list[BoundSymbol]]]:
    """Return both :func:`producers` and :func:`consumers`."""
    bsyms = list(_bsyms(trace_or_bsyms))
    return producers(bsyms), consumers(bsyms)


def find_producer_symbols(
    trace: TraceCtx, proxies: Iterable[Named], stop_proxies: Iterable[Named]
) -> tuple[BoundSymbol, ...]:
    """Return the calls that compute ``proxies`` from ``stop_proxies``, in trace order."""
    stops = {p.name for p in stop_proxies}
    needed = {p.name for p in proxies} - stops
    calls = []
    for bsym in reversed(trace.bound_symbols):
        if any(p.name in needed for p in bsym.flat_proxy_outs):
            calls.append(bsym)
            needed.update([p.name for p in bsym.flat_proxy_args if p.name not in stops])
    return tuple(reversed(calls))


# -- the graph ---------------------------------------------------------------------------------------------


class Node:
    """A bound symbol in the graph of a trace.

    ``parents`` compute its arguments, ``children`` take its outputs. Nodes are neither comparable nor
    hashable; their bound symbols are.
    """

    def __init__(self, bsym: BoundSymbol) -> None:
        self.bsym = bsym
        self.parents: list[Node] = []
        self.children: list[Node] = []

    def __eq__(self, other: object) -> NoReturn:
        raise TypeError("nodes are not comparable; compare node.bsym")

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Node({self.bsym!r})"


#: Statements without children: no call may depend on the end of a value or of the program.
_CHILDLESS = frozenset({DEL, CLEAR, RETURN})


def bsym_list_to_dag(
    bsyms: Sequence[BoundSymbol],
    *,
    producers: ProxyDict[BoundSymbol] | None = None,
    consumers: ProxyDict[list[BoundSymbol]] | None = None,
) -> tuple[list[Node], list[Node]]:
    """Return the roots and the leaves of the dependency graph of a list of bound symbols.

    There is an edge from the call that computes a value to each call that takes it. Further edges keep calls
    with effects (random numbers, writes, printed lines) in their order and before the return; a write after
    earlier reads of the memory and before later ones, also through views, where all inputs may share memory;
    a change of a mode between all calls before and after it; and a ``del`` after the readers. ``producers``
    and ``consumers`` are computed if they are not passed.
    """
    nodes = {bsym: Node(bsym) for bsym in bsyms}
    producer_of = producers if producers is not None else _producers(bsyms)
    edges: dict[tuple[BoundSymbol, BoundSymbol], None] = {}
    for child in bsyms:
        for p in child.flat_proxy_args:
            parent = producer_of.get(p)
            if parent is not None and parent is not child:
                edges[parent, child] = None
    for order in (_order_of_effects(bsyms), _order_of_memory(bsyms, producer_of), _ends(bsyms, consumers)):
        edges.update(dict.fromkeys(order))
    for parent, child in edges:
        if parent in nodes and parent.sym.id not in _CHILDLESS:
            nodes[parent].children.append(nodes[child])
            nodes[child].parents.append(nodes[parent])
    return [n for n in nodes.values() if not n.parents], [n for n in nodes.values() if not n.children]


_producers = producers  # `bsym_list_to_dag` has parameters of these names
_consumers = consumers


#: the set of the inputs' memory; no value has this name
_INPUTS = "the inputs"
#: two calls in the order in which they run
_Edge = tuple[BoundSymbol, BoundSymbol]


def _order_of_effects(bsyms: Sequence[BoundSymbol]) -> Iterator[_Edge]:
    """Yield the order of calls with effects and the return, and of changes of modes among all calls."""
    effect: BoundSymbol | None = None
    mode: BoundSymbol | None = None
    since: list[BoundSymbol] = []  # the calls after the last change of a mode
    for bsym in bsyms:
        if bsym.sym.id in STRUCTURAL - {RETURN}:
            continue
        if mode is not None:
            yield mode, bsym
        if effect is not None and (bsym.sym.id == RETURN or is_ordered(bsym)):
            yield effect, bsym
        if is_ordered(bsym):
            effect = bsym
        if has_tags(bsym, {OpTags.CTX_MANAGER_ENTER_EXIT_OP}):
            yield from ((earlier, bsym) for earlier in since)
            mode, since = bsym, []
        else:
            since.append(bsym)


def _order_of_memory(bsyms: Sequence[BoundSymbol], producer_of: ProxyDict[BoundSymbol]) -> Iterator[_Edge]:
    """Yield the order of writes and of reads of the same memory."""
    if not any(map(written_tensors, bsyms)):
        return
    memory = _memory(bsyms, producer_of)
    written: dict[str, BoundSymbol] = {}  # memory → the last call that wrote to it
    readers: dict[str, list[BoundSymbol]] = {}  # memory → the calls that have read it since
    for bsym in bsyms:
        if bsym.sym.id in STRUCTURAL:
            continue
        targets = {memory.find(p.name) for p in written_tensors(bsym)}
        for name in {memory.find(p.name) for p in _tensors(bsym)}:
            if name in written:
                yield written[name], bsym
            if name in targets:
                yield from ((reader, bsym) for reader in readers.pop(name, ()))
                written[name] = bsym
            else:
                readers.setdefault(name, []).append(bsym)


def _tensors(bsym: BoundSymbol) -> list[TensorProxy]:
    return [p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)]


def _memory(bsyms: Sequence[BoundSymbol], producer_of: ProxyDict[BoundSymbol]) -> DisjointSets:
    """Return the sets of tensors that may share memory: views with their bases, and all inputs."""
    memory = DisjointSets()
    for bsym in bsyms:
        if not may_alias(bsym):
            alike: list[Any] = []
        elif bsym.sym.id == COPY:
            alike = [bsym.args[1], *bsym.flat_proxy_outs]
        else:
            alike = [*_tensors(bsym), *bsym.flat_proxy_outs]
        for p in alike:
            memory.union(alike[0].name, p.name)
        from_outside = [p for p in _tensors(bsym) if p not in producer_of]
        if any(isinstance(p, CollectionProxy) for p in bsym.flat_proxy_args):
            from_outside += [p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)]
        for p in from_outside:
            memory.union(_INPUTS, p.name)
    return memory


def _ends(bsyms: Sequence[BoundSymbol], readers: ProxyDict[list[BoundSymbol]] | None) -> Iterator[_Edge]:
    """Yield the order of the readers of a value and the statement that releases it."""
    for bsym in bsyms:
        if bsym.sym.id in RELEASES:
            readers = readers if readers is not None else _consumers(bsyms)
            for p in bsym.flat_proxy_args:
                yield from ((reader, bsym) for reader in readers.get(p, ()) if reader is not bsym)


class TOPOSORT_ORDER(Enum):
    """The end of the graph at which :func:`toposort_bsym_dag` begins."""

    TOP_DOWN = auto()
    BOTTOM_UP = auto()


def _first(eligible: list[Node]) -> int:
    return 0


def toposort_bsym_dag(
    start_nodes: Sequence[Node],
    toposort_order: TOPOSORT_ORDER,
    selector: Callable[[list[Node]], int] = _first,
) -> list[BoundSymbol]:
    """Return a linear order of a graph, always from top to bottom.

    ``TOP_DOWN`` begins at roots, ``BOTTOM_UP`` at leaves. At each step ``selector`` returns the index of the
    next node among the eligible ones, all of whose predecessors in that direction are placed. Kahn's
    algorithm.
    """
    down = toposort_order is TOPOSORT_ORDER.TOP_DOWN
    ahead: Callable[[Node], list[Node]] = (lambda n: n.children) if down else (lambda n: n.parents)
    waiting = _count_predecessors(start_nodes, ahead)
    eligible = list(start_nodes)
    placed: list[BoundSymbol] = []
    while eligible:
        node = eligible.pop(selector(eligible))
        placed.append(node.bsym)
        for successor in ahead(node):
            waiting[id(successor)] -= 1
            if waiting[id(successor)] == 0:
                eligible.append(successor)
    return placed if down else placed[::-1]


def _count_predecessors(start_nodes: Sequence[Node], ahead: Callable[[Node], list[Node]]) -> dict[int, int]:
    """Return the number of reachable direct predecessors of each node, by its id.

    ``ahead`` returns the successors of a node in the direction of travel.
    """
    count: dict[int, int] = {}
    stack = list(start_nodes)
    seen = {id(n) for n in stack}
    while stack:
        for successor in ahead(stack.pop()):
            count[id(successor)] = count.get(id(successor), 0) + 1
            if id(successor) not in seen:
                seen.add(id(successor))
                stack.append(successor)
    return count
