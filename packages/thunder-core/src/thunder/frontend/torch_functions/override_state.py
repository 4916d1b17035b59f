"""The state of the override protocol: the stack of modes, and the classes of tensors.

While a program is traced, torch's own stack has no mode but that of the default device: thunder's own calls
of torch must reach nothing of the user's. The modes of the program are here.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, lookup_type
from thunder.frontend.places import Place
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol

__all__ = ["Disabled", "TorchFunctions", "has_method", "overrides", "seen_type"]


class Disabled(enum.IntEnum):
    """A part of the override protocol that is disabled, as in torch's ``TorchFunctionDisabledState``."""

    NOTHING = 0
    SUBCLASSES = 1
    EVERYTHING = 2


class TorchFunctions(SessionState):
    """The modes of a program, the innermost last, and what is disabled of the protocol."""

    is_only_read = True

    def __init__(self, session: TracingSession) -> None:
        self._modes: list[Any] = []
        self._disabled = Disabled.NOTHING
        #: whether calls of torch may have overrides; read before each call
        self.applies = False
        self._has_overriding_tensors = bool(session.objects.tensor_classes)
        session.objects.note_overriding_tensor = self.note_overriding
        session.place.add_state(Place.MODE, lambda: self.has_modes)

    @property
    def modes(self) -> tuple[Any, ...]:
        """The modes, the innermost last."""
        return tuple(self._modes)

    @property
    def disabled(self) -> Disabled:
        """The part of the protocol that is disabled now."""
        return self._disabled

    @disabled.setter
    def disabled(self, value: Disabled) -> None:
        self._disabled = value
        self._update()

    @property
    def has_modes(self) -> bool:
        """Whether a mode receives the calls of torch."""
        return bool(self._modes) and self._disabled is not Disabled.EVERYTHING

    @property
    def subclasses_override(self) -> bool:
        """Whether ``__torch_function__`` of arguments is called."""
        return self._disabled is Disabled.NOTHING

    def push(self, mode: Any) -> None:
        """Enter a mode."""
        self._modes.append(mode)
        self._update()

    def pop(self) -> Any:
        """Leave the innermost mode and return it."""
        if not self._modes:
            raise AssertionError("Popped an empty stack of torch function modes")
        mode = self._modes.pop()
        self._update()
        return mode

    @contextmanager
    def popped(self) -> Iterator[Any]:
        """Leave the innermost mode within the context; return the mode."""
        mode = self.pop()
        try:
            yield mode
        finally:
            self.push(mode)

    @contextmanager
    def without_modes(self) -> Iterator[None]:
        """Within the context, no mode is active and nothing is disabled, as in a backward."""
        with self._changed(Disabled.NOTHING):
            yield

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Within the context, what a rule records for a call that has passed the overrides is not refused."""
        with self._changed(Disabled.EVERYTHING):
            yield

    @contextmanager
    def _changed(self, within: Disabled) -> Iterator[None]:
        modes, disabled = self._modes, self._disabled
        self._modes, self.disabled = [], within
        try:
            yield
        finally:
            self._modes, self.disabled = modes, disabled

    def note_overriding(self) -> None:
        """Take notice that the program has a tensor whose class overrides torch's functions."""
        self._has_overriding_tensors = True
        self._update()

    def _update(self) -> None:
        self._session.objects.effects += 1
        by_arguments = self._has_overriding_tensors and self.subclasses_override
        self.applies = self.has_modes or by_arguments

    def refuse_unseen(self, symbol: Symbol | str, values: Iterable[Any]) -> None:
        """Refuse to record what a mode would have received in eager.

        A call that the protocol has handled arrives here when its mode has been left.
        """
        name = symbol if isinstance(symbol, str) else str(symbol.id)
        if not name.startswith("torch.") and not any(isinstance(v, TensorProxy) for v in values):
            return
        if self.has_modes:
            overriding = f"the torch function mode {type(self._modes[-1]).__qualname__}"
        elif (
            self.applies and (t := next((v for v in values if overrides(self._session, v)), None)) is not None
        ):
            overriding = f"the __torch_function__ of {seen_type(self._session, t).__qualname__}"
        else:
            return
        raise UnsupportedProgram(
            f"thunder computes {name} here by a rule of its own, which {overriding} would not receive",
            hint="Call it where the override is not active, or mark a function around it by thunder.opaque.",
        )


def seen_type(session: TracingSession, x: TensorProxy) -> type:
    """Return the class of a tensor in the program: an input's own, else usually ``torch.Tensor``."""
    entry = session.entry_of(x)
    if entry is not None:
        return type(entry.obj)
    computed = session.objects.tensor_classes.get(id(x))
    return torch.Tensor if computed is None else computed[1]


def overrides(session: TracingSession, value: Any) -> bool:
    """Return whether an argument's class overrides torch's functions. It becomes a fact."""
    cls = session.class_of(value)
    return cls not in _PLAIN and has_method(session, cls)


def has_method(session: TracingSession, cls: type) -> bool:
    """Return whether a class has a ``__torch_function__`` that is not disabled. It becomes a fact."""
    if lookup_type(cls, "__torch_function__") is ABSENT:
        return False
    method: Any = session.load_attr(cls, "__torch_function__")
    return method is not torch._C._disabled_torch_function_impl


#: classes whose tensors torch does not treat as overriding
_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, TensorProxy})
