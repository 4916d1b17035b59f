"""Where the programs register themselves: functions, with the arguments that they are run on."""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple


class Program(NamedTuple):
    """A function of one family, and the tuples of arguments that it is called with."""

    family: str
    fn: Callable[..., Any]
    arguments: tuple[tuple[Any, ...], ...]

    @property
    def name(self) -> str:
        """The id of the program in reports."""
        return f"{self.family}.{self.fn.__name__}"


PROGRAMS: list[Program] = []


def program(*arguments: tuple[Any, ...]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a function as a program; without arguments it is called once with none."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        family = fn.__module__.rpartition(".")[2]
        PROGRAMS.append(Program(family, fn, arguments or ((),)))
        return fn

    return register


def load_programs(lacking: dict[str, str] | None = None) -> list[Program]:
    """Imports every family that the running version can compile: ``name_312`` needs CPython 3.12.

    A family that imports what the platform lacks is put into ``lacking``, with the module, where that is given.
    """
    if not PROGRAMS:
        package = __name__.rpartition(".")[0]
        for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
            needed = re.search(r"_(\d)(\d+)$", module.name)
            if needed is None or sys.version_info >= (int(needed[1]), int(needed[2])):
                try:
                    importlib.import_module(f"{package}.{module.name}")
                except ModuleNotFoundError as error:
                    if lacking is None or error.name is None:
                        raise
                    lacking[module.name] = error.name
    return PROGRAMS
