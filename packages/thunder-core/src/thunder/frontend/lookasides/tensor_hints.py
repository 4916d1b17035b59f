"""Hints of TorchDynamo on tensors, such as those of ``torch._dynamo.mark_static_address``.

    state = torch.zeros(3); mark_static_address(state)   →   epilogue: state._dynamo_static_input_type = …

They are attributes. A program may write them to tensors that it computes: it can read them again, and a
tensor that it returns or stores has them. Other attributes of computed tensors are refused: whether two
results are one tensor, which then shares the attribute, is not known while the program is traced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from thunder.frontend.session import SessionState, TracingSession
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import TensorProxy

#: how the names begin that TorchDynamo reserves for itself
_PREFIXES = ("_dynamo_", "_has_dynamo_")


def is_hint(name: str) -> bool:
    """Return whether an attribute of this name is one of TorchDynamo's hints."""
    return name.startswith(_PREFIXES)


class TensorHints(SessionState):
    """The hints that a program has written to the tensors that it computed."""

    def __init__(self, session: TracingSession) -> None:
        self._values: dict[int, tuple[TensorProxy, dict[str, Any]]] = {}  # by id, with the proxy, held

    def __bool__(self) -> bool:
        return bool(self._values)

    def write(self, x: TensorProxy, name: str, value: Any) -> None:
        """Keep the value of a hint."""
        self._values.setdefault(id(x), (x, {}))[1][name] = value

    def read(self, x: TensorProxy, name: str) -> Any:
        """Return the value of a hint, or MISSING."""
        entry = self._values.get(id(x))
        return MISSING if entry is None else entry[1].get(name, MISSING)

    def of(self, tensors: Iterable[Any]) -> Iterator[tuple[TensorProxy, str, Any]]:
        """Yield the hints of some tensors: the tensor, the name and the value."""
        for x in tensors:
            for name, value in self._values.get(id(x), (x, {}))[1].items():
                yield x, name, value
