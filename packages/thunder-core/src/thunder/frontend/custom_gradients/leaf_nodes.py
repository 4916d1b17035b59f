"""The nodes of torch's graph that accumulate the gradients of leaves, in the traced program.

p.view_as(p).grad_fn.next_functions[0][0]      # as packages for distributed training get it
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

import torch

from thunder.base.errors import InternalError, UnsupportedProgram
from thunder.frontend.objects.class_kinds import OfTheTrace
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

__all__ = ["LeafNode", "accumulating_node", "emit_node", "leaf_node"]


class LeafNode(OfTheTrace):
    """The node of a leaf; there is one for each."""

    def __init__(self, tensor: TensorProxy) -> None:
        self.tensor = tensor

    def seen_class(self) -> type:
        """Return torch's class of the node."""
        return torch._C._functions.AccumulateGrad  # type: ignore[attr-defined, no-any-return]

    def description(self) -> str:
        return "the node of a leaf"

    def register_prehook(self, fn: Any) -> NoReturn:
        """Register a hook before the node; a rule does it."""
        raise InternalError("a hook of a node is registered by a rule")

    def register_hook(self, fn: Any) -> NoReturn:
        """Register a hook after the node; a rule does it."""
        raise InternalError("a hook of a node is registered by a rule")


class _LeafNodes(SessionState):
    """The nodes by the id of the leaf."""

    def __init__(self, session: TracingSession) -> None:
        self.nodes: dict[int, LeafNode] = {}


def leaf_node(session: TracingSession, x: TensorProxy) -> LeafNode:
    """Return the node of a leaf; of an input is guarded that it is one."""
    entry = session.entry_of(x)
    if entry is not None:
        session.note(prims.check_same_object, entry.path.step("attribute", "is_leaf"), True)
    return session.state(_LeafNodes).nodes.setdefault(id(x), LeafNode(x))


def emit_node(builder: EpilogueBuilder, node: LeafNode) -> str:
    """Return the name of the node of a leaf in the epilogue."""
    entry = builder.session.entry_of(node.tensor)
    if entry is None or builder.session.objects.keeps_original_metadata:
        raise UnsupportedProgram(
            "the program returns, stores or hooks the node of a leaf of its own, or of one that is replaced",
            found={node.tensor.name: f'"{node.tensor.type_string()}"'},
            hint="Use the node of a leaf that comes from outside.",
        )
    tensor = builder.fetched(entry.path, entry.obj)
    return builder.assigned("node", node, f"{builder.refer(accumulating_node)}({tensor})")


def accumulating_node(leaf: torch.Tensor) -> torch.autograd.graph.Node:
    """Return the node that accumulates the gradient of a leaf."""
    with torch.enable_grad(), torch._C.DisableTorchFunction():
        node = leaf.view_as(leaf).grad_fn
    assert node is not None, "a view of a leaf that requires grad has a node"
    return node.next_functions[0][0]  # type: ignore[return-value]
