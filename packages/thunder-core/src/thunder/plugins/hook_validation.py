"""Checks of a plugin's hooks before it is registered, so that a fault is reported as the plugin's.

pluggy ignores a function without a mark, and reports unknown names only after all plugins are registered.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import ModuleType

import pluggy

from thunder.base.errors import RegistrationError, did_you_mean
from thunder.plugins.not_installed import DOCUMENTED_HOOKS, not_installed_hint

__all__ = ["arguments_fault", "hook_fault", "hooks_of", "new_hooks"]


def hooks_of(manager: pluggy.PluginManager) -> Mapping[str, Sequence[str]]:
    """Return the name of each hook that core or a plugin defines → the arguments that it offers."""
    callers = vars(manager.hook).items()
    return {name: caller.spec.argnames for name, caller in callers if caller.spec is not None}


def new_hooks(manager: pluggy.PluginManager, specs: ModuleType | type) -> Mapping[str, Sequence[str]]:
    """Return the hooks that a module or class defines; none if it has defined them already.

    They are the functions with the mark `hookspec`, each with its arguments. Raises RegistrationError for one
    that is defined elsewhere.
    """
    names = [name for name in dir(specs) if manager.parse_hookspec_opts(specs, name) is not None]
    defined = [getattr(manager.hook, name).spec for name in names if name in hooks_of(manager)]
    for spec in defined:
        if spec.namespace is not specs:
            raise RegistrationError(
                f"the hook {spec.name!r} is defined twice",
                found={"first": spec.namespace.__name__, "second": specs.__name__},
                hint="Begin its name with the package's, such as 'thunder_acme_rules'.",
            )
    return {} if defined else {n: tuple(inspect.signature(getattr(specs, n)).parameters) for n in names}


def hook_fault(manager: pluggy.PluginManager, plugin: object) -> str | None:
    """Return why the plugin's hooks cannot be registered, or None.

    Faults are a misspelt name or argument, a missing mark, a wrapper, a mark that asks for another order. A
    hook that is marked as optional need not exist.
    """
    hooks = hooks_of(manager)
    for name in sorted(set(dir(plugin))):
        marks = manager.parse_hookimpl_opts(plugin, name)
        function = getattr(plugin, name, None)
        if marks is None and not (name in hooks and inspect.isroutine(function)):
            continue
        fault = _fault(name, function, marks, hooks)
        if fault is not None:
            return fault
    return None


def _fault(
    name: str, function: object, marks: pluggy.HookimplOpts | None, hooks: Mapping[str, Sequence[str]]
) -> str | None:
    if marks is None:
        return f"{name} is a hook, and lacks the mark @thunder.plugins.hookimpl"
    name = marks.get("specname") or name
    if any(marks.get(mark) for mark in ("wrapper", "hookwrapper", "tryfirst", "trylast")):
        return f"{name} is a wrapper, tryfirst or trylast; plugins are called in the order of rank and name"
    if name in hooks:
        return arguments_fault(name, function, hooks[name])
    if marks.get("optionalhook"):
        return None
    if name in DOCUMENTED_HOOKS:
        return f"no loaded plugin defines the hook {name!r}. {not_installed_hint(DOCUMENTED_HOOKS[name])}"
    return f"there is no hook {name!r}.{did_you_mean(name, hooks)}"


def arguments_fault(name: str, function: object, offered: Sequence[str]) -> str | None:
    """Return which argument of an implementation its hook does not offer, or None."""
    assert callable(function), "only routines carry marks"
    for parameter in inspect.signature(function).parameters:
        if parameter not in offered:
            suggestion = did_you_mean(parameter, offered)
            arguments = ", ".join(offered) or "none"
            return f"{name} has no argument {parameter!r}.{suggestion} Its arguments: {arguments}"
    return None
