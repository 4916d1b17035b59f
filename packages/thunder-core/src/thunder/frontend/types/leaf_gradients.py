"""The attribute ``grad`` of tensors in the traced program.

What the program assigns to the ``grad`` of an input is assigned again by the epilogue, and so is that of a
leaf that the program creates and that leaves it.
"""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.session import TracingSession
from thunder.frontend.types.written_attributes import WrittenAttributes
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy

__all__ = ["assign_grad", "read_grad"]


def read_grad(session: TracingSession, x: TensorProxy) -> Any:
    """Return ``x.grad``."""
    entry = session.entry_of(x)
    if entry is None:
        value = session.state(WrittenAttributes).read(x, "grad")
        return None if value is MISSING else value
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
        entry.writes.pop("grad", None)  # it is no name in a dictionary
        entry.write("grad", value)
    else:
        session.state(WrittenAttributes).write(x, "grad", value)
