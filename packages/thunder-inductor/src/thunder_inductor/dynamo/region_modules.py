"""Regions that TorchDynamo marks in graphs, as modules: checkpoints, and functions with own gradients."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint

from .function_modules import replace_function_calls

__all__ = ["CheckpointedBody", "with_modules_for_regions"]

_TAG = torch.ops.higher_order.tag_activation_checkpoint
_ARGUMENTS_OF_CHECKPOINT = frozenset(
    {*inspect.signature(checkpoint).parameters, "preserve_rng_state"} - {"function", "args", "kwargs"}
)


class CheckpointedBody(torch.nn.Module):
    """A module that runs the graph `body` under `torch.utils.checkpoint.checkpoint`."""

    def __init__(self, body: torch.fx.GraphModule, settings: dict[str, Any]) -> None:
        super().__init__()
        self.body = body
        self.settings = settings

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Return the results of the body, which is computed again in the backward."""
        return checkpoint(self.body, *args, **kwargs, **self.settings)


def with_modules_for_regions(gm: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a copy that calls a module where TorchDynamo marked a region; bodies included.

        tag_activation_checkpoint(wrap_body_0, x, use_reentrant=False)   →   checkpointed_0(x)

    The operator itself only marks nodes for AOTAutograd, and saves all intermediates where it is run.
    Tensors, and modules other than graphs, are shared with `gm`.
    """
    graph = torch.fx.Graph()
    output = graph.graph_copy(gm.graph, {})
    graph.output(output)
    copied = torch.fx.GraphModule(gm, graph)
    copied.meta = dict(gm.meta)
    for name, child in list(copied.named_children()):
        if isinstance(child, torch.fx.GraphModule):
            setattr(copied, name, with_modules_for_regions(child))
    for index, node in enumerate(graph.find_nodes(op="call_function", target=_TAG)):
        _replace(copied, node, f"checkpointed_{index}")
    replace_function_calls(copied)
    copied.recompile()
    return copied


def _replace(gm: torch.fx.GraphModule, node: torch.fx.Node, name: str) -> None:
    """Replace the marked region of a node by a module that runs it under `checkpoint`."""
    body = node.args[0]
    assert isinstance(body, torch.fx.Node), f"the body of a checkpoint is {body!r}"
    settings = {k: v for k, v in node.kwargs.items() if k in _ARGUMENTS_OF_CHECKPOINT}
    arguments = {k: v for k, v in node.kwargs.items() if k not in _ARGUMENTS_OF_CHECKPOINT}
    gm.add_submodule(name, _checkpointed(gm, str(body.target), settings))
    with gm.graph.inserting_before(node):
        call = gm.graph.call_module(name, tuple(node.args[1:]), arguments)
    call.meta = dict(node.meta)
    node.replace_all_uses_with(call)
    gm.graph.erase_node(node)
    if not body.users:
        gm.graph.erase_node(body)


def _checkpointed(gm: torch.fx.GraphModule, name: str, settings: dict[str, Any]) -> CheckpointedBody:
    body = gm.get_submodule(name)
    assert isinstance(body, torch.fx.GraphModule), f"the body of a checkpoint is a {type(body).__name__}"
    context_fn = body.meta.get("_checkpoint_context_fn")
    chosen = {"use_reentrant": False, **settings}
    return CheckpointedBody(body, chosen if context_fn is None else {**chosen, "context_fn": context_fn})
