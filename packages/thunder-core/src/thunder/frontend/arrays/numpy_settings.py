"""NumPy's settings of floating-point errors and of texts, which programs read, and set in regions.

    with np.errstate(divide="ignore"):    →    a context variable is set while the region is traced; what the
        k = np.float64(1) / n                  caller has set is a fact

NumPy computes while the program is traced, under the settings of the region.
"""

from __future__ import annotations

import sys
from contextvars import ContextVar
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.context_values import ContextVariables
from thunder.frontend.natives.libraries import numpy
from thunder.frontend.session import TracingSession

__all__ = ["call", "is_setting", "is_settings", "note_print_options"]


def _of_numpy(path: str) -> Any:
    """Return an object of a module of NumPy's core, or None where this version has none."""
    module, _, name = path.rpartition(".")
    return getattr(sys.modules.get(f"numpy._core.{module}"), name, None)


def is_setting(fn: Any) -> bool:
    """Return whether a native function reads or makes settings of floating-point errors."""
    if getattr(fn, "__name__", "") not in ("_make_extobj", "_get_extobj_dict"):
        return False
    return fn is _of_numpy(f"_multiarray_umath.{fn.__name__}")


def is_settings(value: Any) -> bool:
    """Return whether a value is NumPy's object of settings of floating-point errors, which is immutable."""
    make = _of_numpy("_multiarray_umath._make_extobj")
    return type(value).__name__ == "PyCapsule" and make is not None and type(value) is type(make())


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return settings of floating-point errors: those of a region that the program begins, or the present.

    Raises UnsupportedProgram where NumPy would call a function for each error.
    """
    query = _of_numpy("_multiarray_umath._get_extobj_dict")
    present = query()
    if kwargs.get("call") is not None or present["call"] is not None:
        raise UnsupportedProgram(
            "a function that NumPy calls at floating-point errors is set",
            hint="Leave call= of np.errstate away, and np.seterrcall.",
        )
    _note(session, "_ufunc_config._extobj_contextvar", query, "NumPy's handling of floating-point errors")
    return fn(*args, **kwargs)


def note_print_options(session: TracingSession) -> None:
    """Note the settings of the caller for texts of arrays, unless the program has set its own."""
    module: Any = numpy()
    _note(session, "printoptions.format_options", module.get_printoptions, "NumPy's print options")


def _note(session: TracingSession, variable: str, query: Any, described: str) -> None:
    setting = _of_numpy(variable)
    if isinstance(setting, ContextVar) and session.state(ContextVariables).is_set(setting):
        return
    session.note_state(query, described, query())
