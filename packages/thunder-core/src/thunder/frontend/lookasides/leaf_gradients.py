"""The attribute ``grad`` of tensors in the traced program.

What the program assigns to the ``grad`` of an input is assigned again by the epilogue. A leaf that the
program creates has a ``grad`` only within the program.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import TensorProxy

__all__ = ["LeafGradients", "assign_grad", "read_grad", "refuse_returned_leaves"]


class LeafGradients(SessionState):
    """The gradients of leaves that the program created, by the id of the leaf, with the leaf, held."""

    def __init__(self, session: TracingSession) -> None:
        self.values: dict[int, tuple[TensorProxy, Any]] = {}


def read_grad(session: TracingSession, x: TensorProxy) -> Any:
    """Return ``x.grad``."""
    entry = session.entry_of(x)
    if entry is None:
        return session.state(LeafGradients).values.get(id(x), (x, None))[1]
    if "grad" not in entry.attrs:
        with torch._C.DisableTorchFunction():
            raw = entry.obj.grad
        entry.attrs["grad"] = session.adopt(raw, entry.path.step("attribute", "grad"))
    return entry.attrs["grad"]


def assign_grad(session: TracingSession, x: TensorProxy, value: Any) -> None:
    """Do ``x.grad = value``.

    Raises torch's error for a value of another type, and UnsupportedProgram for one that does not fit the
    tensor.
    """
    if value is not None and not isinstance(value, TensorProxy):
        raise TypeError(
            f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}"
        )
    if value is not None:
        fits = (tuple(x.shape), x.dtype, x.device) == (tuple(value.shape), value.dtype, value.device)
        if value is x or not fits:
            raise UnsupportedProgram(
                "the program assigns a gradient that does not fit its tensor",
                found={x.name: f'"{x.type_string()}"', value.name: f'"{value.type_string()}"'},
                hint="Assign another tensor of the same shape, dtype and device.",
            )
    entry = session.entry_of(x)
    if entry is not None:
        entry.write("grad", value)
    else:
        session.state(LeafGradients).values[id(x)] = x, value


def refuse_returned_leaves(session: TracingSession, returned: Iterable[Any]) -> None:
    """Refuse a tensor that leaves the program with a gradient that only the program has."""
    values = session.state(LeafGradients).values
    for p in returned if values else ():
        if values.get(id(p), (p, None))[1] is not None:
            raise UnsupportedProgram(
                "a tensor that the program created leaves it with a gradient",
                found={p.name: f'"{p.type_string()}"'},
                hint="Return the gradient instead: x.grad.",
            )
