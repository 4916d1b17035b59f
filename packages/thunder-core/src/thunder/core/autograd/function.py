"""What torch's autograd sees of a compiled program: one function, with its tensors saved as torch saves them.

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
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.core.devices import to_torch_device
from thunder.core.proxies import TensorProxy
from thunder.core.running import note_statement
from thunder.core.trace import TraceCtx

__all__ = ["Connected", "Interface", "ThunderFunction"]

#: cotangent for each result of the function, whether it is there
Present = tuple[bool, ...]


class ThunderFunction(torch.autograd.Function):
    """The node of a compiled program in torch's graph."""

    @staticmethod
    def forward(
        ctx: Any, program: Connected, results: list[Any], unread: list[Any], *read: Any
    ) -> tuple[torch.Tensor, ...]:
        """Runs the forward of ``program``; puts what the program returns into ``results``.

        torch hands on the very tensors that are returned here, after it has entered them into its graph. So
        the structure that the program returns already holds them.
        """
        returned, (saved, others) = program.forward_fn(*program.interface.merged(read, unread))
        ctx.program, ctx.others = program, others
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*saved)
        results.append(returned["output"])
        flat = returned["flat_output"]
        interface = program.interface
        return (*[flat[i] for i in interface.results], *[saved[i] for i in interface.hidden])

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[Any, ...]:
        """The gradients of the program's inputs."""
        gradients = ctx.program.gradients(ctx, cotangents)
        unread = ctx.program.interface.unread
        return (None, None, None, *(g for i, g in enumerate(gradients) if i not in unread))


@dataclass(frozen=True)
class Interface:
    """Which tensors of a forward are results of the function.

    ``results`` are positions in ``flat_output``: what requires grad and is no input. ``hidden`` are positions
    among the saved tensors (Note [Hidden results]). ``unread`` are positions of inputs that no call of the
    program reads: they are no part of torch's graph, for what they came from may be freed by now.
    """

    results: tuple[int, ...]
    hidden: tuple[int, ...]
    #: the names of the saved tensors
    saved: tuple[str, ...]
    unread: tuple[int, ...] = field(default=(), compare=False)

    @classmethod
    def of(cls, forward: TraceCtx) -> Interface:
        """The interface of a trace tagged ``AUGMENTED_FORWARD``."""
        returned, (saved, _) = forward.bound_symbols[-1].args
        inputs = {p.name for p in returned["flat_args"] if isinstance(p, TensorProxy)}
        flat = returned["flat_output"]
        results = tuple(i for i, p in enumerate(flat) if p.requires_grad and p.name not in inputs)
        known = inputs | {flat[i].name for i in results}
        hidden = tuple(i for i, p in enumerate(saved) if p.requires_grad and p.name not in known)
        names = tuple(p.name for p in saved)
        read = {p.name for bsym in forward.bound_symbols[:-1] for p in bsym.flat_proxy_args} | {*names}
        unread = tuple(i for i, p in enumerate(forward.args) if p.name not in read)
        return cls(results, hidden, names, unread)

    def merged(self, read: Sequence[Any], unread: Sequence[Any]) -> list[Any]:
        """The inputs, of those that the program reads and of the others."""
        if not unread:
            return list(read)
        ones, others = iter(read), iter(unread)
        return [next(others if i in self.unread else ones) for i in range(len(read) + len(unread))]

    @property
    def usual(self) -> Present:
        """The cotangents of a first derivative of all results."""
        return (True,) * len(self.results) + (False,) * len(self.hidden)


class Connected:
    """A forward with its backwards: called with tensors, it enters torch's graph.

    ``backward_fn`` is for the usual cotangents. ``variant(present)`` compiles the backward for others, and
    ``derivative(present)`` a form of the backward that enters torch's graph in turn: a function of the saved
    tensors, the other saved values and the cotangents that are there. Where ``results`` are given, proxies of
    the results, ``backward_fn`` is the only backward: cotangents that are not there are zeros.
    """

    def __init__(
        self,
        interface: Interface,
        forward_fn: Callable[..., Any],
        backward_fn: Callable[..., Any],
        variant: Callable[[Present], Callable[..., Any]],
        derivative: Callable[[Present], Callable[..., Any]],
        results: Sequence[TensorProxy] | None = None,
    ) -> None:
        self.interface, self.forward_fn = interface, forward_fn
        self._variant, self._derivative, self._results = variant, derivative, results
        self._backwards: dict[Present, Callable[..., Any]] = {interface.usual: backward_fn}
        self._derivatives: dict[Present, Callable[..., Any]] = {}

    def __call__(self, *args: Any) -> Any:
        """Runs the program; its results are connected to ``args`` where gradients are tracked."""
        results: list[Any] = []
        unread = self.interface.unread
        read = [a for i, a in enumerate(args) if i not in unread] if unread else args
        ThunderFunction.apply(self, results, [args[i] for i in unread], *read)  # type: ignore[no-untyped-call]
        return results[0]

    def gradients(self, ctx: Any, cotangents: Sequence[torch.Tensor | None]) -> tuple[Any, ...]:
        """The gradients of the inputs. With ``create_graph`` they enter torch's graph in turn."""
        if self._results is not None:
            cotangents = [*_filled(cotangents, self._results), *cotangents[len(self._results) :]]
        present = tuple(c is not None for c in cotangents)
        given = [c for c in cotangents if c is not None]
        if torch.is_grad_enabled():
            return self._of(self._derivatives, self._derivative, present)(  # type: ignore[no-any-return]
                *ctx.saved_tensors, *ctx.others, *given
            )
        backward = self._of(self._backwards, self._variant, present)
        # The lists are this call's own, so that the backward can let go of each tensor after its last use.
        saved = [list(ctx.saved_tensors), list(ctx.others)]
        ctx.maybe_clear_saved_tensors()
        try:
            return backward(saved, given)  # type: ignore[no-any-return]
        except Exception as error:
            note_statement(error)
            raise

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
