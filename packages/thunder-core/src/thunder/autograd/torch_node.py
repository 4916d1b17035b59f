"""What torch's autograd sees of a compiled program: nodes, with their tensors saved as torch saves them.

Note [Hidden results]

    def f(x, w):                     forward:   h = sin(x); out = h * w      saves x, w, h
        return torch.sin(x) * w      backward:  g_w = g * h; g_x = g * w * cos(x)

A second derivative flows through ``g_w`` into ``h``, and so into ``x``. torch can follow that only if ``h``
comes out of the function, like ``out``. So what is saved and requires grad is a result of the function too.
The program does not see it; its cotangent is None except in a second derivative, for which there is a
backward of its own: the same steps, begun with the cotangents that are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.autograd.wiring import Present, Wiring
from thunder.base.devices import to_torch_device
from thunder.base.runtime_errors import note_statement
from thunder.ir.proxies import TensorProxy

__all__ = ["Connected", "Node", "ThunderFunction"]


class ThunderFunction(torch.autograd.Function):
    """Enters a node of a compiled program, which has run, into torch's graph."""

    @staticmethod
    def forward(
        ctx: Any, node: Node, outputs: list[torch.Tensor], saved: Sequence[Any], others: Any, *edges: Any
    ) -> tuple[torch.Tensor, ...]:
        """Connects ``outputs`` with ``edges``.

        torch hands on the very tensors that are returned here, after it has entered them into its graph. So
        the structure that the program returns already holds them.
        """
        ctx.node, ctx.others = node, others
        ctx.memory = _memory_of(saved, node.wiring.watched)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        """The gradients of the edges."""
        return (None, None, None, None, *ctx.node.gradients(ctx, cotangents))


class Node:
    """A node of a program in torch's graph, with its backwards.

    ``variant(present)`` compiles the backward for the cotangents that are there, and ``derivative(present)``
    a form of it that enters torch's graph in turn: a function of the saved tensors, the other saved values
    and the cotangents that are there. Where ``backward_fn`` is given, it is the backward for the usual
    cotangents. Where ``results`` are given, proxies of the results, ``backward_fn`` is the only backward:
    cotangents that are not there are zeros.
    """

    def __init__(
        self,
        wiring: Wiring,
        variant: Callable[[Present], Callable[..., Any]],
        derivative: Callable[[Present], Callable[..., Any]],
        backward_fn: Callable[..., Any] | None = None,
        results: Sequence[TensorProxy] | None = None,
    ) -> None:
        self.wiring = wiring
        self._variant, self._derivative, self._results = variant, derivative, results
        known = {} if backward_fn is None else {wiring.usual: backward_fn}
        self._backwards: dict[Present, Callable[..., Any]] = known
        self._derivatives: dict[Present, Callable[..., Any]] = {}

    def gradients(self, ctx: Any, cotangents: Sequence[torch.Tensor | None]) -> Sequence[Any]:
        """The gradients of the edges. With ``create_graph`` they enter torch's graph in turn."""
        if self._results is not None:
            cotangents = [*_filled(cotangents, self._results), *cotangents[len(self._results) :]]
        present = tuple(c is not None for c in cotangents)
        given = [c for c in cotangents if c is not None]
        if torch.is_grad_enabled():
            derivative = self._of(self._derivatives, self._derivative, present)
            found = derivative(*self._saved(ctx), *ctx.others, *given)
        else:
            found = self._computed(self._of(self._backwards, self._variant, present), ctx, given)
        return [found[i] for i in self.wiring.given]

    def _computed(self, backward: Callable[..., Any], ctx: Any, given: list[Any]) -> Any:
        # The lists are this call's own, so that the backward can let go of each tensor after its last use.
        kept = [list(self._saved(ctx)), list(ctx.others)]
        if kept[0]:
            ctx.maybe_clear_saved_tensors()
        try:
            return backward(kept, given)
        except Exception as error:
            note_statement(error)
            raise

    def _saved(self, ctx: Any) -> Sequence[torch.Tensor]:
        # A node that saves nothing may run again, as in eager. Of the others torch knows whether they may.
        saved: Sequence[torch.Tensor] = ctx.saved_tensors if self.wiring.saved else ()
        if ctx.memory is not None and _memory_of(saved, self.wiring.watched) != ctx.memory:
            raise RuntimeError(
                "one of the variables needed for gradient computation has been given other memory since the "
                "forward, by an assignment to .data. Eager would compute with the old memory where it has "
                "saved a view of it, and with the new one elsewhere. Assign after the backward."
            )
        return saved

    @staticmethod
    def _of(
        known: dict[Present, Callable[..., Any]],
        make: Callable[[Present], Callable[..., Any]],
        present: Present,
    ) -> Callable[..., Any]:
        found = known.get(present)
        if found is None:
            found = known[present] = make(present)
        return found


class Connected:
    """A forward with its nodes, earlier ones first: called with tensors, it enters torch's graph."""

    def __init__(self, forward_fn: Callable[..., Any], nodes: Sequence[Node]) -> None:
        self.forward_fn, self.nodes = forward_fn, nodes

    def __call__(self, *args: Any) -> Any:
        """Runs the program; its results are connected to ``args`` where gradients are tracked."""
        mode = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)
        try:
            returned, (saved, others) = self.forward_fn(*args)
        finally:
            torch._C._set_grad_enabled(mode)
        values = [*args, *returned["flat_output"], *saved]
        if len(self.nodes) == 1:
            _entered(self.nodes[0], values, saved, others)
        else:
            for node in self.nodes:
                outputs = _entered(node, values, [values[i] for i in node.wiring.saved], others)
                for i, value in zip(node.wiring.outputs, outputs, strict=True):
                    values[i] = value  # for later nodes: an output that is an input too is another tensor now
        return returned["output"]


def _entered(node: Node, values: list[Any], saved: Sequence[Any], others: Any) -> tuple[torch.Tensor, ...]:
    wiring = node.wiring
    outputs, edges = [values[i] for i in wiring.outputs], [values[i] for i in wiring.edges]
    return ThunderFunction.apply(node, outputs, saved, others, *edges)  # type: ignore[no-any-return, no-untyped-call]


def _memory_of(saved: Sequence[Any], watched: tuple[int, ...]) -> list[int] | None:
    """Where the watched ones of the saved tensors lie; None if something else than torch keeps them, or if
    nobody knows.

    Without hooks torch saves the caller's own tensor objects, which an assignment to ``.data`` changes.
    """
    if not watched or torch._C._autograd._top_saved_tensors_default_hooks(False) is not None:
        return None
    try:
        return [saved[i].data_ptr() for i in watched]
    except RuntimeError:  # a tensor without storage
        return None


def _filled(
    cotangents: Sequence[torch.Tensor | None], results: Sequence[TensorProxy]
) -> list[torch.Tensor | None]:
    """Cotangents of the results, with zeros for those that are not there."""
    return [
        c
        if c is not None
        else torch.zeros(r.shape, dtype=r.dtype.torch_dtype, device=to_torch_device(r.device))
        for c, r in zip(cotangents, results, strict=False)
    ]
