"""Names of the nodes that eager's texts of tensors show: ``tensor(2., grad_fn=<MeanBackward0>)``."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from thunder.base.pytree import tree_map
from thunder.base.shown_tensors import LEAVES
from thunder.base.tags import OpTags
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.override_state import seen_type
from thunder.frontend.types.same_tensors import original_of
from thunder.ir.aliasing import shared_memory, views_of
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ops import prims
from thunder.ops.layouts import Layouts
from thunder.ops.operator import row_of
from thunder.ops.stand_ins import stand_in_tensor

#: operators whose nodes depend on the device
_BY_DEVICE = frozenset({"torch.nn.functional.scaled_dot_product_attention"})

__all__ = ["LEAVES", "NodeOfCall", "node_class", "node_name", "node_of_call"]


@dataclass(frozen=True)
class Edge:
    """An edge from the node of a call to one of its tensors, the one at ``place``.

    It is ``transposed`` where a node of ``t()`` is between, as for the weight of ``linear``.
    """

    place: int
    transposed: bool

    def turned(self, gradient: Any) -> Any:
        """Return the gradient of the tensor from that of the edge, or that of the edge."""
        return gradient.t() if self.transposed and gradient is not None else gradient


@dataclass(frozen=True, eq=False)
class NodeOfCall:
    """The node that torch makes for a call.

    ``results`` are those of the call of which it is the node, in its order. ``inputs`` are the tensors of the
    call, with those that stood in for them.
    """

    call: BoundSymbol
    node: torch.autograd.graph.Node
    results: list[TensorProxy]
    inputs: list[tuple[TensorProxy, torch.Tensor]]

    def edges(self) -> list[Edge | None] | None:
        """Return the edges of the node, None for one without a gradient; None if other nodes come between."""
        places = {t.grad_fn: i for i, (_, t) in enumerate(self.inputs) if t.requires_grad}
        edges: list[Edge | None] = []
        for node, _ in self.node.next_functions:
            end, is_turned = node, False
            if node is not None and node not in places and node.name() == "TBackward0":
                end, is_turned = node.next_functions[0][0], True
            if end is not None and end not in places:
                return None
            edges.append(None if end is None else Edge(places[end], is_turned))
        return edges


def node_name(session: TracingSession, x: Any) -> str | None:
    """Return the name of :func:`node_class`, or None."""
    cls = node_class(session, x)
    return None if cls is None else cls.__name__


def node_class(session: TracingSession, x: Any) -> type | None:
    """Return the class of the node of a tensor that the program computed, that of a leaf, or None.

    Torch runs the call that computes it on tensors without data. None: the tensor requires no gradients, or
    is an input that was not written, or torch has no function for the call.
    """
    if not isinstance(x, TensorProxy) or not x.requires_grad:
        return None
    x = original_of(session, x)
    if x.declared_leaf and not x.requires_grad_since_write:
        return _leaf(session, x)
    if torch.is_autocast_enabled("cpu"):
        return None
    call, node = _last_change(session, x)
    if node is not None:
        return node
    found = _run_without_data(session, x, call)
    return None if found is None else type(found.node)


def node_of_call(session: TracingSession, x: TensorProxy) -> NodeOfCall | None:
    """Return the node of a tensor that a call computes, made of tensors without data, or None."""
    x = original_of(session, x)
    if (x.declared_leaf and not x.requires_grad_since_write) or torch.is_autocast_enabled("cpu"):
        return None
    call, node = _last_change(session, x)
    return None if node is not None else _run_without_data(session, x, call)


def _run_without_data(session: TracingSession, x: TensorProxy, call: BoundSymbol | None) -> NodeOfCall | None:
    while call is not None and OpTags.HOOKED in call.sym.tags:  # between the value and its uses
        place = next(i for i, p in enumerate(call.flat_proxy_outs) if original_of(session, p) is x)
        x = original_of(session, call.args[place])
        call = next((b for b in session.trace.bound_symbols if any(p is x for p in b.flat_proxy_outs)), None)
    row = row_of(call.sym) if call is not None else None
    if (
        call is None
        or row is None
        or row.eager is None
        or call.sym.id in _BY_DEVICE
        or call.sym.executor is not None
        or any(map(_is_number, call.flat_proxy_args))
    ):
        return None
    index = next((i for i, p in enumerate(call.flat_proxy_outs) if original_of(session, p) is x), 0)
    inputs: list[tuple[TensorProxy, torch.Tensor]] = []
    below = below_node_hooks(session)

    def without_data(leaf: Any) -> Any:
        value = _without_data(leaf)
        if isinstance(leaf, TensorProxy):
            inputs.append((below.get(leaf.name, leaf), value))
        return value

    try:
        with torch.random.fork_rng(devices=()), torch.enable_grad():
            args, kwargs = _as_written(*tree_map(without_data, (call.args, call.kwargs)))
            results = row.eager(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
    if results is None:  # it writes to its first argument
        results = args[0]
    outs = list(results) if isinstance(results, list | tuple) else [results]
    result = outs[index] if index < len(outs) else None
    if not isinstance(result, torch.Tensor) or result.grad_fn is None:
        return None
    pairs = zip(outs, call.flat_proxy_outs, strict=False)
    own = [(t.output_nr, p) for t, p in pairs if isinstance(t, torch.Tensor) and t.grad_fn is result.grad_fn]
    results = [p for _, p in sorted(own, key=lambda pair: pair[0])] if len(own) > 1 else [x]
    return NodeOfCall(call, result.grad_fn, results, inputs)


def below_node_hooks(session: TracingSession) -> dict[str, TensorProxy]:
    """Return the arguments of calls whose node has a hook after it, by the names of their identities."""
    below: dict[str, TensorProxy] = {}
    for call in session.trace.bound_symbols:
        for view in views_of(call) if OpTags.HOOKED_ARGUMENTS in call.sym.tags else ():
            below[view.output.name] = below.get(view.source.name, view.source)
    return below


def _leaf(session: TracingSession, x: TensorProxy) -> type | None:
    """Return the class of a leaf that the program made or wrote, else None."""
    calls = session.trace.bound_symbols
    memory = shared_memory(calls)
    written = (part.args[1].name for part in with_parts(calls) if part.sym is prims.copy_)
    is_input = session.entry_of(x) is not None
    if is_input and memory.find(x.name) not in map(memory.find, written):
        return None
    cls = seen_type(session, x)
    return cls if cls in LEAVES.values() else None


def _last_change(session: TracingSession, x: TensorProxy) -> tuple[BoundSymbol | None, type | None]:
    """Return the call that made or last wrote a tensor, and the node that a write to a view gave it, or None.

    Torch gives a base one node for the write to a view, and a view the node of its strides in the base.
    """
    trace, calls = session.trace, session.trace.bound_symbols
    layouts = Layouts((a for a in trace.args if isinstance(a, TensorProxy)), calls)
    bases: dict[str, str] = {}
    last, node, mode = None, None, trace.grad_enabled
    for call in calls:
        if call.sym is prims.set_grad_enabled:
            mode = call.args[0]
        writes = [part.args[1] for part in with_parts((call,)) if part.sym is prims.copy_]
        if not writes and any(p is x for p in call.flat_proxy_outs):
            last = call
        for view in views_of(call):
            shares = view.certain or layouts.share_memory(view.output, view.source)
            is_tracked = mode and not view.is_detached
            if shares and is_tracked and original_of(session, view.output) is view.output:
                source = original_of(session, view.source).name
                bases[view.output.name] = bases.get(source, source)
        for target in (original_of(session, target).name for target in writes):
            if bases.get(target, target) != bases.get(x.name, x.name):
                continue
            if x.name in bases:
                node = _nodes_of_writes()[1]
            elif mode:
                node, last = (_nodes_of_writes()[0], last) if target != x.name else (None, call)
    return last, node


@functools.cache
def _nodes_of_writes() -> tuple[type, type]:
    """Return the classes of the nodes that a write to a view gives its base and the view."""
    with torch.inference_mode(False), torch.enable_grad():
        base = torch.zeros(2, device="meta", requires_grad=True).clone()
        view = base[:1]
        view.add_(1)
    return type(base.grad_fn), type(view.grad_fn)


def _as_written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a call without those that ``x.mean()`` leaves out: it has another node."""
    first = next((i for i, a in enumerate(args) if a is None), len(args))
    if any(a is not None and a is not False for a in args[first:]):
        first = len(args)
    leaves_out = first < len(args) or ("dim" in kwargs and kwargs["dim"] is None)
    left_out = {"stable", "keepdim"} if leaves_out else {"stable"}
    return args[:first], {k: v for k, v in kwargs.items() if v is not None and (v or k not in left_out)}


def _is_number(x: Any) -> bool:
    return not isinstance(x, TensorProxy)


def _without_data(x: Any) -> Any:
    if not isinstance(x, TensorProxy):
        assert not is_proxy(x), "numbers of the trace are refused before"
        return x
    tensor = stand_in_tensor(x, "meta", requires_grad=True)
    return tensor.clone() if tensor.requires_grad else tensor
