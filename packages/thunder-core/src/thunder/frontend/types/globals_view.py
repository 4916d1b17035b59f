"""The value of ``globals()`` in the traced program."""

from __future__ import annotations

from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.session import TracingSession
from thunder.interpreter.policy import MISSING


class GlobalsView:
    """The dictionary that ``globals()`` returns: each name is guarded at its look-up."""

    def __init__(self, session: TracingSession, namespace: dict[str, Any]) -> None:
        self._tracer, self._namespace = session, namespace

    def __getitem__(self, name: str) -> Any:
        value = self._tracer.load_global(self._namespace, {}, name)
        if value is MISSING:
            raise KeyError(name)
        return value

    def __contains__(self, name: str) -> bool:
        return self._tracer.load_global(self._namespace, {}, name) is not MISSING

    def get(self, name: str, default: Any = None) -> Any:
        """Return the global, or ``default``."""
        value = self._tracer.load_global(self._namespace, {}, name)
        return default if value is MISSING else value

    def __setitem__(self, name: str, value: Any) -> None:
        self._tracer.store_global(self._namespace, name, value)

    def __delitem__(self, name: str) -> None:
        self._tracer.delete_global(self._namespace, name)

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return the global, which becomes ``default`` if there is none."""
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, *others: Any, **values: Any) -> None:
        """Set several globals."""
        for name, value in dict(*others, **values).items():
            self[name] = value

    def _refuse(self, *args: Any) -> Any:
        raise UnsupportedProgram(
            "the program reads all globals of a module, and each of them would become a fact",
            hint="Read them by name: globals()[name].",
        )

    __iter__ = __len__ = __eq__ = __or__ = __ror__ = __reversed__ = _refuse
    keys = values = items = copy = pop = popitem = clear = _refuse
    __hash__ = None  # type: ignore[assignment]


def namespace_of_view(view: GlobalsView) -> dict[str, Any]:
    """Return the globals themselves."""
    return view._namespace
