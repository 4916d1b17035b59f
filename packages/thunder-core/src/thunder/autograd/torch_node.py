"""The nodes of a compiled program in torch's graph.

Note [Hidden results]

    def f(x, w):                     forward:   h = sin(x); out = h * w      saves x, w, h
        return torch.sin(x) * w      backward:  g_w = g * h; g_x = g * w * cos(x)

A second derivative flows through ``g_w`` into ``h``, and so into ``x``. torch can follow that only if ``h``
comes out of the function, like ``out``. So a saved tensor that requires grad is a result of the function too.
The program does not see it. Its cotangent is None except in a second derivative, which has another backward:
the same steps, begun with the cotangents that are present.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from thunder.autograd.call_sizes import CallSizes, Variants, compiled_for
from thunder.autograd.wiring import Present, Wiring
from thunder.base.pytree import tree_map
from thunder.base.runtime_errors import note_statement

__all__ = ["Connected", "Node", "NodeResult", "ThunderFunction"]


class NodeResult(NamedTuple):
    """What a cotangent of zeros needs of a result of a node."""

    dtype: torch.dtype
    device: torch.device


class ThunderFunction(torch.autograd.Function):
    """The torch.autograd.Function of every node; the program has run when it is applied."""

    @staticmethod
    def forward(
        ctx: Any, node: Node, outputs: list[torch.Tensor], saved: Sequence[Any], rest: Any, *edges: Any
    ) -> tuple[torch.Tensor, ...]:
        """Connect ``outputs`` with ``edges`` in torch's graph.

        torch returns the same tensor objects that are returned here, which the structure of the program's
        results already holds.
        """
        ctx.node, (ctx.others, ctx.sizes) = node, rest
        ctx.memory = _addresses(saved, node.wiring.watched)
        ctx.shapes = [outputs[i].shape for i in range(len(node.results or ()))]
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the edges."""
        return (None, None, None, None, *ctx.node.gradients(ctx, cotangents))


class Node:
    """A node of a program in torch's graph, with its backwards.

    ``variant(present)`` compiles the backward for the cotangents that are present. ``derivative(present)``
    compiles one that enters torch's graph: a function of the call's sizes, the saved tensors, the other saved
    values and the cotangents that are present. ``backward_fn`` is the backward for the usual cotangents, if
    it is compiled; with ``results`` it is the only backward, and cotangents that are not present are zeros.
    """

    def __init__(
        self,
        wiring: Wiring,
        variant: Callable[[Present], Callable[..., Any]],
        derivative: Callable[[Present], Callable[..., Any]],
        backward_fn: Callable[..., Any] | None = None,
        results: Sequence[NodeResult] | None = None,
    ) -> None:
        self.wiring = wiring
        self.variant, self.derivative, self.results = variant, derivative, results
        self._backwards: dict[Present, Variants] = {}
        if backward_fn is not None:
            self._backwards[wiring.usual] = [((), backward_fn)]
        self._derivatives: dict[Present, Variants] = {}

    def gradients(self, ctx: Any, cotangents: Sequence[torch.Tensor | None]) -> Sequence[Any]:
        """Return the gradients of the edges. With ``create_graph`` they enter torch's graph."""
        if self.results is not None:
            filled = _filled(cotangents, self.results, ctx.shapes)
            cotangents = [*filled, *cotangents[len(self.results) :]]
        present = tuple(c is not None for c in cotangents)
        grad_outputs = [c for c in cotangents if c is not None]
        if torch.is_grad_enabled():
            variants = self._derivatives.setdefault(present, [])
            derivative = compiled_for(variants, ctx.sizes, lambda: self.derivative(present))
            grads = derivative(ctx.sizes, *self._saved(ctx), *ctx.others, *grad_outputs)
        else:
            variants = self._backwards.setdefault(present, [])
            backward = compiled_for(variants, ctx.sizes, lambda: self.variant(present))
            grads = self._run(backward, ctx, grad_outputs)
        return [grads[i] for i in self.wiring.gradients]

    def _run(self, backward: Callable[..., Any], ctx: Any, grad_outputs: list[Any]) -> Any:
        # The lists belong to this call, so that the backward can release each tensor after its last use.
        residuals = [list(self._saved(ctx)), list(ctx.others)]
        if residuals[0]:
            ctx.maybe_clear_saved_tensors()
        try:
            return backward(residuals, grad_outputs)
        except Exception as error:
            note_statement(error)
            raise

    def _saved(self, ctx: Any) -> Sequence[torch.Tensor]:
        # A node that saves no tensor may run again, as in eager. For the others torch raises the error.
        saved: Sequence[torch.Tensor] = ctx.saved_tensors if self.wiring.saved else ()
        if ctx.memory is not None and _addresses(saved, self.wiring.watched) != ctx.memory:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been given other memory since the "
                "forward, by an assignment to .data. Eager would compute with the old memory where it has "
                "saved a view of it, and with the new one elsewhere. Assign after the backward."
            )
        return saved


class Connected:
    """A forward with its nodes, earlier ones first; a call enters torch's graph.

    ``bases`` are the positions of the results (``flat_output``) that are views of nothing in the program. A
    kernel may return a view of memory that it has allocated itself: torch forbids writes to a view that a
    function returns, so that the result is another tensor of that memory. ``sizes`` returns the symbolic
    sizes of a call, from its arguments.
    """

    def __init__(
        self,
        forward_fn: Callable[..., Any],
        nodes: Sequence[Node],
        bases: Sequence[int],
        sizes: Callable[[Sequence[Any]], CallSizes | None],
    ) -> None:
        self.forward_fn, self.nodes, self.bases, self.sizes = forward_fn, nodes, bases, sizes

    def __call__(self, *args: Any) -> Any:
        """Run the program; its results are connected to ``args`` where gradients are tracked."""
        return self.run(self.sizes(args), args)

    def run(self, sizes: CallSizes | None, args: Sequence[Any]) -> Any:
        """Run the program for a call with these sizes."""
        mode = torch.is_grad_enabled()
        try:
            torch._C._set_grad_enabled(False)
            returned, (saved, others) = self.forward_fn(*args)
            output, results = returned["output"], returned["flat_output"]
            views = [t for i in self.bases if (t := results[i])._is_view()]
            if views:
                output, results = _untracked(views, (output, results))
        finally:
            torch._C._set_grad_enabled(mode)
        values = [*args, *results, *saved]
        rest = others, sizes
        if len(self.nodes) == 1:
            _apply(self.nodes[0], values, saved, rest)
        else:
            for node in self.nodes:
                outputs = _apply(node, values, [values[i] for i in node.wiring.saved], rest)
                for i, value in zip(node.wiring.outputs, outputs, strict=True):
                    values[i] = value  # later nodes read it: an output that is an input is a new tensor
        return output


def _untracked(views: Sequence[torch.Tensor], results: Any) -> Any:
    """Return a tree of results with tensors of the same memory, which are not views, in place of views."""
    untracked = {id(view): view.detach() for view in views}
    return tree_map(lambda leaf: untracked.get(id(leaf), leaf), results)


def _apply(node: Node, values: list[Any], saved: Sequence[Any], rest: Any) -> tuple[torch.Tensor, ...]:
    wiring = node.wiring
    outputs, edges = [values[i] for i in wiring.outputs], [values[i] for i in wiring.edges]
    return ThunderFunction.apply(node, outputs, saved, rest, *edges)  # type: ignore[no-any-return, no-untyped-call]


def _addresses(saved: Sequence[Any], watched: tuple[int, ...]) -> list[int] | None:
    """Return the addresses of the watched saved tensors, or None if they are not known.

    They are not if hooks save the tensors, or if one has no storage.

    Without hooks torch saves the caller's own tensor objects, which an assignment to ``.data`` changes.
    """
    if not watched or torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        return None
    try:
        return [saved[i].data_ptr() for i in watched]
    except RuntimeError:  # a tensor without storage
        return None


def _filled(
    cotangents: Sequence[torch.Tensor | None], results: Sequence[NodeResult], shapes: Sequence[torch.Size]
) -> list[torch.Tensor | None]:
    """Return the cotangents of the results, with zeros for missing ones; the shapes are those of the call."""
    return [
        torch.zeros(shape, dtype=r.dtype, device=r.device) if c is None else c
        for c, r, shape in zip(cotangents, results, shapes, strict=False)
    ]
