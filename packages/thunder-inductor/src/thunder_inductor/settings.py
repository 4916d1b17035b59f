"""The options of `thunder.jit` by which the code of regions is generated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from thunder.extend import compile_option

from .operators import Mode

__all__ = ["CompileTime", "Settings", "compile_time", "current_settings"]

#: when regions are compiled: before the first run, in the background, or there once that is worth it
CompileTime = Literal["now", "background", "later"]


@dataclass(frozen=True)
class Settings:
    """The options of a compile by which TorchInductor generates code.

    Attributes:
        mode: what regions contain.
        rounds: whether each operator rounds its result to bfloat16 or float16, as in eager.
    """

    mode: Mode
    rounds: bool = True


def current_settings() -> Settings:
    """Return the settings of the compile that runs; those of the options' defaults where none runs."""
    return Settings(compile_option("inductor_mode"), compile_option("inductor_rounding") == "eager")


def compile_time() -> CompileTime:
    """Return when the compile that runs compiles its regions, by `inductor_compile`."""
    return cast(CompileTime, compile_option("inductor_compile"))
