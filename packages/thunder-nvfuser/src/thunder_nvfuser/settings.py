"""The options of `thunder.jit` by which regions are compiled."""

from __future__ import annotations

from dataclasses import dataclass

from thunder.extend import compile_option

__all__ = ["Settings", "current_settings"]


@dataclass(frozen=True)
class Settings:
    """The options of a compile that concern the library.

    Attributes:
        enable: options of nvFuser to enable.
        disable: options of nvFuser to disable.
        reproducers: the folder for reproducers; none if empty.
    """

    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    reproducers: str = ""


def current_settings() -> Settings:
    """Return the settings of the compile that runs; those of the options' defaults where none runs."""
    return Settings(
        _names(compile_option("nvfuser_enable")),
        _names(compile_option("nvfuser_disable")),
        str(compile_option("nvfuser_reproducers")),
    )


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
