"""Attributes that a program writes to tensors that it computes, such as ``mask.is_causal = True``.

    h = self.layer(x); h.scale = 2.0; return h     →     epilogue: h.scale = 2.0

The program can read them again, and a tensor that it returns or stores has them. Where a call may return its
argument (``x.contiguous()``) and does, both are one tensor with the same attributes. Attributes of inputs are
writes to objects like others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.frontend.types.same_tensors import original_of
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder


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

    @property
    def needs_epilogue(self) -> bool:
        return bool(self)

    def emit_after(self, builder: EpilogueBuilder, ending: Ending) -> None:
        """Set the attributes of each tensor that leaves the program; each may add tensors."""
        done: set[str] = set()
        while self and (pending := [name for name in builder.tensors if name not in done]):
            for name in pending:
                done.add(name)
                tensor = builder.tensors[name]
                own = self.of(original_of(self._session, tensor)) if isinstance(tensor, TensorProxy) else {}
                for key, value in own.items():
                    text = builder.expression(value)
                    builder.emit(f"{builder.parameters.get(name, name)}.{key} = {text}")
