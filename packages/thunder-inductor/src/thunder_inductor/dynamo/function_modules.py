"""`torch.autograd.Function`s of TorchDynamo's graphs as functions again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._functorch.autograd_function import autograd_function_apply
from torch.autograd.function import once_differentiable

__all__ = ["FunctionModule", "replace_function_calls"]


class FunctionModule(torch.nn.Module):
    """A module that applies a function with a gradient of its own, both given as graphs.

    `forward_body(*args)` returns the results and a tuple of saved values, and
    `backward_body(*cotangents, *saved)` a gradient or None for each argument. The graphs turn grad mode off:
    a second derivative is an error, and TorchDynamo's operator would take the gradient for a constant.

    Args:
        not_differentiable: indices of results that have no gradient.
        saved_tensors: indices of the saved values that `save_for_backward` received.
    """

    def __init__(
        self,
        forward_body: torch.nn.Module,
        backward_body: torch.nn.Module,
        not_differentiable: Sequence[int],
        saved_tensors: Sequence[int],
    ) -> None:
        super().__init__()
        self.forward_body = forward_body
        self.backward_body = backward_body
        self.not_differentiable = tuple(not_differentiable)
        self.saved_tensors = tuple(saved_tensors)
        self.function = _function(forward_body, backward_body, self.not_differentiable, self.saved_tensors)

    def forward(self, *args: Any) -> Any:
        """Return the results of the function."""
        return self.function.apply(*args)


def _function(
    forward_body: torch.nn.Module,
    backward_body: torch.nn.Module,
    not_differentiable: tuple[int, ...],
    saved_tensors: tuple[int, ...],
) -> Any:
    class GraphFunction(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with torch.no_grad():  # restores the grad mode that the graph changes
                results, saved = forward_body(*args)
            several = results if isinstance(results, tuple | list) else (results,)
            ctx.mark_non_differentiable(*[several[i] for i in not_differentiable])
            ctx.save_for_backward(*[saved[i] for i in saved_tensors])
            ctx.others = [None if i in saved_tensors else value for i, value in enumerate(saved)]
            return results

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, *cotangents: Any) -> Any:
            saved = list(ctx.others)
            for i, tensor in zip(saved_tensors, ctx.saved_tensors, strict=True):
                saved[i] = tensor
            with torch.no_grad():
                return backward_body(*cotangents, *saved)

    return GraphFunction


def replace_function_calls(gm: torch.fx.GraphModule) -> None:
    """Replace the operator with which TorchDynamo calls a `torch.autograd.Function`.

        autograd_function_apply(fwd_body_0, bwd_body_0, x, saved_for_backward_idx=[0], …)   →   function_0(x)

    One that writes to its arguments (`mark_dirty`) stays as it is.
    """
    calls = gm.graph.find_nodes(op="call_function", target=autograd_function_apply)
    for index, node in enumerate(calls):
        if node.kwargs.get("dirty_idx"):
            continue
        forward_body, backward_body = node.args[:2]
        name = f"function_{index}"
        module = FunctionModule(
            gm.get_submodule(str(forward_body.target)),
            gm.get_submodule(str(backward_body.target)),
            node.kwargs["non_differentiable_idx"],
            node.kwargs["saved_for_backward_idx"],
        )
        gm.add_submodule(name, module)
        with gm.graph.inserting_before(node):
            call = gm.graph.call_module(name, tuple(node.args[2:]))
        call.meta = dict(node.meta)
        node.replace_all_uses_with(call)
        gm.graph.erase_node(node)
        for body in (forward_body, backward_body):
            if not body.users:
                gm.graph.erase_node(body)
