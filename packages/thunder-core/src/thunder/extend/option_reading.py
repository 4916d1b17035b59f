"""The value of an option of `thunder.jit`, for code of packages that receives no options."""

from __future__ import annotations

from typing import Any

from thunder.base.current_options import current_options, note_read
from thunder.base.errors import UnknownOption, did_you_mean
from thunder.plugins.contributions import declared_options
from thunder.plugins.manager import get_manager

__all__ = ["compile_option"]


def compile_option(name: str) -> Any:
    """Return the value of an option in the compile that is running, as `thunder.jit` received it.

    It is the declared default if the user has not set the option, and where no compile runs. For checkers,
    execution transforms, `can_fuse` and `fuse`; stages and transforms receive their options as an argument.

    Raises UnknownOption for a name that neither core nor a plugin nor `register_option` declares.
    """
    options = current_options()
    if options is not None and name in options:
        note_read(name, options[name])
        return options[name]
    declared = declared_options(get_manager())
    if name not in declared:
        raise UnknownOption(
            f"compile_option({name!r}): there is no such option.{did_you_mean(name, declared)}",
            hint="The hook thunder_options declares a package's, register_option a program's.",
        )
    default = declared[name].default
    note_read(name, default)
    return default
