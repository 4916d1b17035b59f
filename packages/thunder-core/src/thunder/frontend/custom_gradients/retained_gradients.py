"""Intermediate tensors whose gradient is kept: ``y.retain_grad()`` in the traced program.

A tensor that the program returns or keeps retains its gradient from the epilogue on: it is a result of the
function that torch sees, and what is computed from it inside of the program reaches it as another function
(Note [Segments]). No caller can read the gradient of any other intermediate.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.tensor_hooks import has_hooks
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import HOOKS_TENSOR
from thunder.frontend.raised_errors import tensor_refusal
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.ir.aliasing import views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.torch.inplace import is_leaf

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

TABLE = LookasideTable(HOOKS_TENSOR)

#: with so many results each is a node of torch's graph: there are fewer parts than ``segments.MOST_PARTS``
_MOST_RESULTS = 4


class RetainedGradients(SessionState):
    """The tensors that retain their gradient, by id: those of the program, and inputs."""

    def __init__(self, session: TracingSession) -> None:
        self.intermediates: dict[int, TensorProxy] = {}
        self.inputs: dict[int, TensorProxy] = {}

    @property
    def needs_epilogue(self) -> bool:
        return bool(self.intermediates or self.inputs)

    def emit_after(self, builder: EpilogueBuilder, ending: Ending) -> None:
        """Let the results and inputs retain their gradients."""
        for tensor in _retaining_results(self._session, builder.tensors.values()):
            builder.emit(f"{tensor.name}.retain_grad()")
        for tensor in self.inputs.values():
            builder.emit(f"{builder.expression(tensor)}.retain_grad()")


@TABLE.lookaside(torch.Tensor.retain_grad)
def _retain_grad(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    (x,) = args
    if not x.requires_grad:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if is_leaf(x):
        return
    retained = session.state(RetainedGradients)
    (retained.intermediates if session.entry_of(x) is None else retained.inputs)[id(x)] = x


def _retaining_results(session: TracingSession, returned: Collection[Any]) -> list[TensorProxy]:
    """Return the tensors among the results of a program that retain their gradient.

    Raises UnsupportedProgram for one that the function which torch sees may not have as a result of its own.
    """
    retained = session.state(RetainedGradients).intermediates
    results = [p for p in returned if id(p) in retained]
    count = sum(map(requires_grad, returned))
    views = (
        {id(view.output) for b in session.trace.bound_symbols for view in views_of(b)} if results else set()
    )
    for p in results:
        if has_hooks(session, p):
            raise _refusal(p, "a tensor with a hook")
        if id(p) in views:
            raise _refusal(p, "a view")
        if count > _MOST_RESULTS:
            raise _refusal(p, f"one of more than {_MOST_RESULTS} results that require grad")
    return results


def _refusal(x: TensorProxy, what: str) -> UnsupportedProgram:
    what = f"keeps the gradient of {what}"
    return tensor_refusal(x, what, "Call retain_grad() on the result, outside of the compiled function.")
