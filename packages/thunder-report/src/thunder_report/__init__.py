"""Compiled programs as one page: `thunder.report`, and a command. See `docs/looking.md`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from thunder.plugins import Alias, CompileEvent, NamesOfModules, TransformSpec, hookimpl
from thunder_report.records import note_compile

__all__ = ["thunder_commands", "thunder_compiled", "thunder_names", "thunder_transforms"]

#: public name → the module that has it, which is imported when the name is first used
_PUBLIC = {
    "MeasureTransform": "measurement",
    "chrome_trace": "trace_events",
    "collect": "collection",
    "report": "reports",
}


@hookimpl
def thunder_names() -> NamesOfModules:
    """Add `report` to `thunder`; its module is imported when it is first used."""
    return {"thunder": {"report": Alias("thunder_report.reports:report")}}


@hookimpl
def thunder_commands() -> list[str]:
    """Add the command `report`."""
    return ["thunder_report.command"]


@hookimpl
def thunder_transforms() -> list[TransformSpec]:
    """Declare the transform that measures."""
    target = "thunder_report.measurement:MeasureTransform"
    return [TransformSpec("MeasureTransform", target, description="time and memory of each statement")]


@hookimpl
def thunder_compiled(event: CompileEvent) -> None:
    """Note why a program was compiled, and how long its stages took."""
    note_compile(event)


def __getattr__(name: str) -> Any:
    """Return a public name, whose module is imported at its first use."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(f"thunder_report.{module}"), name)
