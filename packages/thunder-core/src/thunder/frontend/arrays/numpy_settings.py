"""NumPy's settings of floating-point errors and of texts, which programs read, and set in regions.

    with np.errstate(divide="ignore"):    →    a context variable is set while the region is traced; what the
        k = np.float64(1) / n                  caller has set is a fact

NumPy computes while the program is traced, under the settings of the region.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.context_values import ContextVariables
from thunder.frontend.natives.libraries import numpy, of_numpy_core
from thunder.frontend.session import TracingSession

__all__ = ["call", "is_setting", "note_print_options", "settings_of_region"]

#: the context variable of NumPy's settings of floating-point errors
_ERRORS: Final = "_ufunc_config._extobj_contextvar"


def is_setting(fn: Any) -> bool:
    """Return whether a native function reads or makes settings of floating-point errors."""
    if getattr(fn, "__name__", "") not in ("_make_extobj", "_get_extobj_dict"):
        return False
    return fn is of_numpy_core(f"_multiarray_umath.{fn.__name__}")


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return settings of floating-point errors: those of a region that the program begins, or the present.

    Raises UnsupportedProgram where NumPy would call a function for each error.
    """
    query = of_numpy_core("_multiarray_umath._get_extobj_dict")
    present = query()
    if kwargs.get("call") is not None or present["call"] is not None:
        raise UnsupportedProgram(
            "a function that NumPy calls at floating-point errors is set",
            hint="Leave call= of np.errstate away, and np.seterrcall.",
        )
    _note(session, _ERRORS, query, "NumPy's handling of floating-point errors")
    return fn(*args, **kwargs)


def note_print_options(session: TracingSession) -> None:
    """Note the settings of the caller for texts of arrays, unless the program has set its own."""
    module: Any = numpy()
    _note(session, "printoptions.format_options", module.get_printoptions, "NumPy's print options")


def settings_of_region(session: TracingSession) -> dict[str, Any] | None:
    """Return how NumPy handles floating-point errors in the program's own region, or None outside of one."""
    module: Any = numpy()
    is_set = session.state(ContextVariables).is_set(of_numpy_core(_ERRORS))
    return module.geterr() if is_set else None


def _note(session: TracingSession, variable: str, query: Any, described: str) -> None:
    setting = of_numpy_core(variable)
    if isinstance(setting, ContextVar) and session.state(ContextVariables).is_set(setting):
        return
    session.note_state(query, described, query())
