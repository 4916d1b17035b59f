"""Nodes of torch's graph in the traced program: ``y.grad_fn`` of a tensor that is not a leaf.

A program can ask whether there is a node, and for the name and class of the node of a tensor that it has
computed. The graph itself exists only when the program has run: what leads into it is refused.
"""

from __future__ import annotations

import functools
from typing import Any, Final, NoReturn

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.objects.class_kinds import OfTheTrace
from thunder.frontend.output.node_names import LEAVES, node_class
from thunder.frontend.places import READS_NODE
from thunder.frontend.session import SessionState, TracingSession
from thunder.frontend.types.tensors import original_of
from thunder.ir.proxies import TensorProxy

__all__ = ["GradientNode", "gradient_node", "load_attr"]


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
        cls = node_class(session, x) if len(session.trace.scopes) == 1 else None
        read = nodes[id(original)] = count, GradientNode(original, None if cls in LEAVES.values() else cls)
    return read[1]


#: the classes of nodes that have another name
_NAMES: Final = {"CopySlices": "torch::autograd::CopySlices"}


def load_attr(session: TracingSession, node: GradientNode, name: str) -> Any:
    """Return an attribute of a node: its class, or the function that returns its name."""
    if name == "__class__":
        return node.seen_class()
    if name == "name":
        return functools.partial(_NAMES.get, node.seen_class().__name__, node.seen_class().__name__)
    if hasattr(torch.autograd.graph.Node, name) or hasattr(node.seen_class(), name):
        _refuse(node, f"reads {name} of the grad_fn of a tensor")
    text = f"'{node.seen_class().__name__}' object has no attribute '{name}'"
    raise AttributeError(text, name=name, obj=node)


def _refuse(node: GradientNode, what: str) -> NoReturn:
    raise UnsupportedProgram(
        f"the program {what}, whose graph exists when the program has run",
        found={node.tensor.name: f'"{node.tensor.type_string()}"'},
        hint="Return the tensor, and look at its graph outside the compiled function.",
    )
