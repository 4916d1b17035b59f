"""Checks of a plugin's hooks before it is registered, so that a fault is reported as the plugin's.

pluggy ignores a function without a mark, and reports unknown names only after all plugins are registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import pluggy

from thunder.base.errors import did_you_mean
from thunder.plugins import hookspecs
from thunder.plugins.markers import PROJECT

__all__ = ["HOOKS", "hook_fault"]

HOOKS: Mapping[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(spec).parameters)
    for name, spec in vars(hookspecs).items()
    if name.startswith(f"{PROJECT}_") and inspect.isfunction(spec)
}
"""Name of each hook → the arguments that it offers."""


def hook_fault(manager: pluggy.PluginManager, plugin: object) -> str | None:
    """Return why the plugin's hooks cannot be registered, or None.

    Faults are a misspelt name or argument, a missing mark, a wrapper, a mark that asks for another order.
    """
    for name in sorted(set(dir(plugin))):
        marks = manager.parse_hookimpl_opts(plugin, name)
        function = getattr(plugin, name, None)
        if marks is None and not (name in HOOKS and inspect.isroutine(function)):
            continue
        fault = _fault(name, function, marks)
        if fault is not None:
            return fault
    return None


def _fault(name: str, function: object, marks: pluggy.HookimplOpts | None) -> str | None:
    if marks is None:
        return f"{name} is a hook, and lacks the mark @thunder.plugins.hookimpl"
    name = marks.get("specname") or name
    if name not in HOOKS:
        return f"there is no hook {name!r}.{did_you_mean(name, HOOKS)}"
    if any(marks.get(mark) for mark in ("wrapper", "hookwrapper", "tryfirst", "trylast")):
        return f"{name} is a wrapper, tryfirst or trylast; plugins are called in the order of rank and name"
    assert callable(function), "only routines carry marks"
    parameters = inspect.signature(function).parameters
    for parameter in parameters:
        if parameter not in HOOKS[name]:
            offered = ", ".join(HOOKS[name]) or "none"
            suggestion = did_you_mean(parameter, HOOKS[name])
            return f"{name} has no argument {parameter!r}.{suggestion} Its arguments: {offered}"
    return None
