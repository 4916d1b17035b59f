"""Nodes of torch's graph in the traced program: ``y.grad_fn`` of a tensor that is not a leaf.

A program can ask whether there is a node, and for the name and class of the node of a tensor that it has
computed; register hooks on it; and go on to the nodes of the tensors of which it was computed, where torch
has one node for the call. The graph itself exists only when the program has run: what else leads into it is
refused.
"""

from __future__ import annotations

import functools
import types
from typing import Any, Final, NoReturn

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.leaf_nodes import LeafNode, leaf_node
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory, written_names
from thunder.frontend.objects.class_kinds import OfTheTrace
from thunder.frontend.output.node_names import LEAVES, NodeOfCall, node_class, node_of_call
from thunder.frontend.places import READS_NODE
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.types.same_tensors import original_of
from thunder.ir.proxies import TensorProxy
from thunder.torch.inplace import is_leaf

__all__ = ["GradientNode", "call_of", "gradient_node", "load_attr"]


class GradientNode(OfTheTrace):
    """The node of a tensor, of which the class is known where torch can be run on tensors without data."""

    __slots__ = ("cls", "tensor")

    def __init__(self, tensor: TensorProxy, cls: type | None) -> None:
        self.tensor, self.cls = tensor, cls

    def seen_class(self) -> type:
        """Return torch's class of the node.

        Raises UnsupportedProgram where it is not known.
        """
        if self.cls is None:
            raise UnsupportedProgram(
                "the program reads the class of the grad_fn of a tensor whose last call thunder cannot tell",
                found={self.tensor.name: f'"{self.tensor.type_string()}"'},
                hint="Compare grad_fn with None, or read it outside the compiled function.",
            )
        return self.cls

    def __eq__(self, other: object) -> bool:
        if self is other or type(other) is not GradientNode:
            return self is other
        _refuse(self, "compares the grad_fn of two tensors")

    def __hash__(self) -> int:
        _refuse(self, "uses the grad_fn of a tensor as a key")

    def __repr__(self) -> str:
        _refuse(self, "shows the grad_fn of a tensor, with its address")

    def description(self) -> str:
        return "the grad_fn of a tensor"

    register_prehook = LeafNode.register_prehook
    register_hook = LeafNode.register_hook


class _Nodes(SessionState):
    """The nodes that the program has read, by the id of the tensor, with the number of calls until then."""

    def __init__(self, session: TracingSession) -> None:
        self.read: dict[int, tuple[int, GradientNode]] = {}


def gradient_node(session: TracingSession, x: TensorProxy) -> GradientNode:
    """Return ``x.grad_fn`` of a tensor that is not a leaf: one object until the next call of the program.

    Raises UnsupportedProgram in a function that torch.func transforms, where a tensor may have none.
    """
    original = original_of(session, x)
    if not session.place.allows(READS_NODE):
        what = "reads, in a function that torch.func transforms, the grad_fn of a tensor"
        _refuse(GradientNode(original, None), what)
    count = sum(map(len, session.trace.scopes))
    nodes = session.state(_Nodes).read
    read = nodes.get(id(original))
    if read is None or read[0] != count:
        cls = node_class(session, x) if len(session.trace.open_scopes) == 1 else None
        read = nodes[id(original)] = count, GradientNode(original, None if cls in LEAVES.values() else cls)
    return read[1]


#: the classes of nodes that have another name
_NAMES: Final = {
    "CopySlices": "torch::autograd::CopySlices",
    "AccumulateGrad": "torch::autograd::AccumulateGrad",
}


def load_attr(session: TracingSession, node: GradientNode | LeafNode, name: str) -> Any:
    """Return an attribute of a node: its class, a method, or the nodes that come after it in a backward."""
    if name in ("register_prehook", "register_hook"):
        return types.MethodType(getattr(type(node), name), node)
    if isinstance(node, LeafNode) and name == "variable":
        return node.tensor
    if name == "next_functions":
        return () if isinstance(node, LeafNode) else _next_functions(session, node)
    if name == "__class__":
        return node.seen_class()
    if name == "name":
        return functools.partial(_NAMES.get, node.seen_class().__name__, node.seen_class().__name__)
    if hasattr(torch.autograd.graph.Node, name) or hasattr(node.seen_class(), name):
        _refuse(node, f"reads {name} of the grad_fn of a tensor")
    text = f"'{node.seen_class().__name__}' object has no attribute '{name}'"
    raise AttributeError(text, name=name, obj=node)


def call_of(session: TracingSession, node: GradientNode) -> NodeOfCall:
    """Return the call that has a node; raises UnsupportedProgram if that is not known, or was overwritten."""
    found = node_of_call(session, node.tensor) if len(session.trace.open_scopes) == 1 else None
    read = session.state(_Nodes).read.get(id(node.tensor))
    if found is None or read is None or read[1] is not node:
        _refuse(node, "uses the grad_fn of a tensor of which thunder does not know the call")
    return found


def _next_functions(session: TracingSession, node: GradientNode) -> tuple[tuple[Any, int], ...]:
    found = call_of(session, node)
    calls, edges = session.trace.bound_symbols, found.edges()
    start = 1 + next(i for i, b in enumerate(calls) if b is found.call)
    written = {name for b in calls[start:] for name in written_names(b)}
    result: list[tuple[Any, int]] = []
    if edges is None or any(edge is not None and edge.transposed for edge in edges):
        _refuse(node, "reads next_functions of the grad_fn of a tensor, whose call has several nodes,")
    for x in (None if edge is None else found.inputs[edge.place][0] for edge in edges):
        if x is None:
            result.append((None, 0))
        elif not names_of_memory(calls, {x.name}).isdisjoint(written):
            _refuse(node, "reads next_functions of the grad_fn of a tensor, of which an argument is written,")
        elif is_leaf(original_of(session, x)):
            result.append((leaf_node(session, original_of(session, x)), 0))
        else:
            other = gradient_node(session, x)
            if len(call_of(session, other).results) != 1:
                _refuse(node, "reads next_functions of a tensor that is one of several results,")
            result.append((other, 0))
    return tuple(result)


def _refuse(node: GradientNode | LeafNode, what: str) -> NoReturn:
    raise UnsupportedProgram(
        f"the program {what}, whose graph exists when the program has run",
        found={node.tensor.name: f'"{node.tensor.type_string()}"'},
        hint="Return the tensor, and look at its graph outside the compiled function.",
    )
