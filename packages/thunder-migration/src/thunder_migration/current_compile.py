"""The compile that is running, for checkers and execution transforms that receive no options."""

from __future__ import annotations

from typing import Any

from thunder import CompileData
from thunder.core.compile_data import running_compile
from thunder.core.errors import OutsideTrace
from thunder.core.options import CACHE_OPTIONS

__all__ = ["get_compile_data", "get_compile_option", "using_symbolic_values"]


def get_compile_data() -> CompileData | None:
    """Return the settings of the compile that is running in this context, or None."""
    return running_compile()


def get_compile_option(option: str, description: str, *, default: Any = None) -> Any:
    """Return the value of an option of the running compile; `default` if it is undeclared or None.

    An option that users set is declared by `thunder.extend.register_option` or the hook `thunder_options`;
    unset, it has its declared default. `description` is for readers of the code.

    Raises OutsideTrace where no compile runs.
    """
    data = running_compile()
    if data is None:
        raise OutsideTrace(
            f"get_compile_option({option!r}) was called where no compile runs",
            hint="Call it in a checker, an execution transform, a meta function or a hook of a transform.",
        )
    if option not in data.compile_options:
        return default
    value = data.compile_options[option]
    return default if value is None else value


def using_symbolic_values() -> bool:
    """Return whether numbers and dimensions are inputs of the programs that are compiled."""
    data = running_compile()
    return data is not None and data.cache_option is CACHE_OPTIONS.SYMBOLIC_VALUES
