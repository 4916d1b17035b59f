"""The options of `thunder.jit` by which regions are compiled."""

from __future__ import annotations

from dataclasses import dataclass

from thunder.extend import compile_option

from .library_options import DISABLE, DUMP, ENABLE, checked_names

__all__ = ["Settings", "current_settings"]


@dataclass(frozen=True)
class Settings:
    """The options of a compile that concern the library.

    Attributes:
        enable: options of nvFuser to enable.
        disable: options of nvFuser to disable.
        dump: what nvFuser prints.
        reproducers: the folder for reproducers; none if empty.
    """

    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    dump: tuple[str, ...] = ()
    reproducers: str = ""


def current_settings() -> Settings:
    """Return the settings of the compile that runs; those of the options' defaults where none runs.

    Raises InvalidArgument for a name that nvFuser does not have.
    """
    return Settings(
        enable=_names("nvfuser_enable", ENABLE),
        disable=_names("nvfuser_disable", DISABLE),
        dump=_names("nvfuser_dump", DUMP),
        reproducers=str(compile_option("nvfuser_reproducers")),
    )


def _names(option: str, known: frozenset[str]) -> tuple[str, ...]:
    return checked_names(option, compile_option(option), known)
