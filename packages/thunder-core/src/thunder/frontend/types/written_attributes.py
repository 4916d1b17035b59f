"""Attributes that a program writes to tensors that it computes, such as ``mask.is_causal = True``.

    h = self.layer(x); h.scale = 2.0; return h     →     epilogue: h.scale = 2.0

The program can read them again, and a tensor that it returns or stores has them. Where a call may return its
argument (``x.contiguous()``) and does, both are one tensor with the same attributes. Attributes of inputs are
writes to objects like others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.frontend.session import SessionState, TracingSession
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy


class WrittenAttributes(SessionState):
    """The attributes that a program has written to the tensors that it computed."""

    def __init__(self, session: TracingSession) -> None:
        self._values: dict[int, tuple[TensorProxy, dict[str, Any]]] = {}  # by id, with the proxy, held

    def __bool__(self) -> bool:
        return any(values for _, values in self._values.values())

    def of(self, x: TensorProxy) -> dict[str, Any]:
        """Return the attributes of a tensor."""
        entry = self._values.get(id(x))
        return {} if entry is None else entry[1]

    def taken(self, x: TensorProxy) -> dict[str, Any]:
        """Return the attributes of a tensor, and forget them."""
        return self._values.pop(id(x), (x, {}))[1]

    def write(self, x: TensorProxy, name: str, value: Any) -> None:
        """Set an attribute."""
        self._values.setdefault(id(x), (x, {}))[1][name] = value

    def read(self, x: TensorProxy, name: str) -> Any:
        """Return the value of an attribute, or MISSING."""
        return self.of(x).get(name, MISSING)


def emit_attributes(
    session: TracingSession,
    tensors: dict[str, Any],
    original_of: Callable[[TracingSession, TensorProxy], TensorProxy],
    emit: Callable[[str, str, Any], None],
) -> None:
    """Call ``emit(tensor, name, value)`` for the attributes of each tensor by name.

    Each call may add tensors.
    """
    written = session.state(WrittenAttributes)
    done: set[str] = set()
    while written and (pending := [name for name in tensors if name not in done]):
        for tensor in pending:
            done.add(tensor)
            if isinstance(tensors[tensor], TensorProxy):
                for name, value in written.of(original_of(session, tensors[tensor])).items():
                    emit(tensor, name, value)
