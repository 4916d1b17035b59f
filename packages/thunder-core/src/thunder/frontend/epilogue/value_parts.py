"""The parts of values that leave the program, the variables of functions included."""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any

from thunder.frontend.epilogue.iterators import original
from thunder.frontend.epilogue.reconstruction import children, reconstruction_of
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import Proxy, TensorProxy

if TYPE_CHECKING:
    from thunder.frontend.session import TracingSession

__all__ = ["is_built", "parts_of", "proxies_of"]


def is_built(session: TracingSession, value: Any) -> bool:
    """Return whether a value is built by the epilogue, of parts."""
    return reconstruction_of(value) is not None or session.made_by(value) is not None


def parts_of(session: TracingSession, value: Any) -> Iterable[Any]:
    """Return what a value is built of: of a function, defaults, attributes, and what its own cells hold."""
    if (made_by := session.made_by(value)) is not None:
        return made_by[1]
    function = original(value)
    if type(function) is not FunctionType:
        return children(value)
    own = [c for c in function.__closure__ or () if id(c) not in session.variables.cell_paths]
    contents = map(session.variables.load_cell, own)
    defaults = *(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()
    return [*defaults, *function.__dict__.values(), *(c for c in contents if c is not MISSING)]


def proxies_of(session: TracingSession, values: Iterable[Any]) -> list[Any]:
    """Return the proxies of which values are built; a value may contain itself."""
    pending, seen, proxies = list(values), dict[int, Any](), []
    while pending:
        value = pending.pop()
        if isinstance(value, TensorProxy | Proxy):
            proxies.append(value)
        elif id(value) not in seen and is_built(session, value):
            seen[id(value)] = value
            pending += parts_of(session, value)
    return proxies
