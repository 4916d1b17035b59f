"""Flags of torch's kernels that a program sets: ``sdpa_kernel``, ``cudnn.flags``, ``allow_tf32``, …

While tracing, the flag is set, so that the program reads what it has set; it is restored at the end. In the
trace, a statement sets it at the same place:

    with sdpa_kernel(SDPBackend.MATH):      →   set_sdp_use_flash(False); …
        y = F.scaled_dot_product_attention      t1 = scaled_dot_product_attention(…)
                                                set_sdp_use_flash(True); …
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import READS_SURROUNDINGS
from thunder.frontend.session import SessionState, TracingSession
from thunder.ops import prims
from thunder.ops.prims.backend_flags import FLAGS, flag_values, restore_flags

TABLE = LookasideTable(READS_SURROUNDINGS)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]


class WrittenFlags(SessionState):
    """The names of the setters of the flags that the program has set."""

    def __init__(self, session: TracingSession) -> None:
        self.names: set[str] = set()
        self._initial: dict[str, Any] = {}

    def add(self, name: str) -> None:
        """Note that the program sets a flag; called before it does."""
        if name not in self.names:
            self._initial |= flag_values((name,))
            self.names.add(name)

    def end(self) -> None:
        restore_flags(self._initial)


def _declare(name: str) -> None:
    setter, getter = FLAGS[name]

    @TABLE.lookaside(setter)
    def write(session: TracingSession, args: Args, kwargs: Kwargs) -> None:
        if len(args) != 1 or kwargs:
            setter(*args, **kwargs)  # raises TypeError
        value = tuple(args[0]) if isinstance(args[0], list | tuple) else args[0]
        _read(session)
        if getter() == (list(value) if isinstance(value, tuple) else value):
            return
        session.state(WrittenFlags).add(name)
        setter(value)
        prims.set_backend_flag(name, value)

    @TABLE.lookaside(getter)
    def read(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        value = getter(*args, **kwargs)
        _read(session)
        return value

    def _read(session: TracingSession) -> None:
        """Guard the value of the flag when the call began, unless the program has set it since."""
        if name not in session.state(WrittenFlags).names:
            session.note_state(getter, f"torch._C.{getter.__name__}()", getter())


for _name in FLAGS:
    _declare(_name)


# -- the enumeration of attention's kernels, which pybind11 implements ---------------------------------------

_BACKENDS: Any = torch.nn.attention.SDPBackend


def _natively(method: Any) -> None:
    @TABLE.lookaside(method)
    def rule(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
        return method(*args, **kwargs)


for _method in ("__eq__", "__ne__", "__hash__", "__int__", "__index__", "__repr__", "__str__"):
    _natively(getattr(vars(_BACKENDS).get(_method), "__func__", None))


for _property in ("name", "value"):
    _natively(getattr(vars(_BACKENDS).get(_property), "fget", None))


# -- precision -----------------------------------------------------------------------------------------------

_get_precision = getattr(torch._C, "_get_fp32_precision_getter", None)


@TABLE.with_parameters(getattr(torch._C, "_set_fp32_precision_setter", None))
def _set_precision(session: TracingSession, backend: Any, operation: Any, value: Any) -> None:
    """Guard the precision of a backend's kernels, to which the program sets it."""
    assert _get_precision is not None, "torch has both or neither"
    query = functools.partial(_get_precision, backend, operation)
    session.note_state(query, f"the precision of {backend}'s {operation}", query())
    if query() != value:
        raise UnsupportedProgram(
            f"the program changes the precision of {backend}'s kernels from {query()!r} to {value!r}",
            hint="Set it before the call of the compiled function.",
        )
