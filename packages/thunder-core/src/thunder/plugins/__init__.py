"""The plugin system: hooks, the declarations that they return, and the state of each plugin.

A plugin is a module that implements hooks::

    # thunder_acme.py, entry point "acme" of the group "thunder.plugins"
    from thunder.plugins import ExecutorSpec, hookimpl

    @hookimpl
    def thunder_executors():
        return [ExecutorSpec("acme", "acme_kernels:executor", requires=("acme",))]

`thunder.plugins.hookspecs` documents every hook.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import partial

from thunder.base.extension_origin import origin_of
from thunder.base.options import Option
from thunder.base.plugin_calls import plugin_call
from thunder.base.precedence import PrecedenceCycle, in_precedence
from thunder.base.public_names import Alias, NamesOfModules, Replaced, missing_name
from thunder.plugins.contributions import list_of, per_generation
from thunder.plugins.load_policy import is_strict
from thunder.plugins.manager import PluginManager, get_manager
from thunder.plugins.markers import ENTRY_POINT_GROUP, HOOK_API_VERSION, for_executor, hookimpl, hookspec
from thunder.plugins.plugin_info import PluginInfo, PluginState
from thunder.plugins.specs import (
    CompileEvent,
    DeviceProfile,
    ExecutorSpec,
    IfPresent,
    Lookaside,
    TransformSpec,
    Unavailable,
)
from thunder.plugins.vendor_library import VendorLibrary

__all__ = [
    "ENTRY_POINT_GROUP",
    "HOOK_API_VERSION",
    "Alias",
    "CompileEvent",
    "DeviceProfile",
    "ExecutorSpec",
    "IfPresent",
    "Lookaside",
    "NamesOfModules",
    "Option",
    "PluginInfo",
    "PluginManager",
    "PluginState",
    "PrecedenceCycle",
    "Replaced",
    "TransformSpec",
    "Unavailable",
    "VendorLibrary",
    "disabled",
    "for_executor",
    "get_manager",
    "hookimpl",
    "hookspec",
    "in_precedence",
    "is_strict",
    "list_of",
    "list_plugins",
    "missing_name",
    "origin_of",
    "per_generation",
    "plugin_call",
]


def list_plugins() -> tuple[PluginInfo, ...]:
    """Return every plugin, loaded or not: name, package, version, state, reason, declarations."""
    return get_manager().list_plugins()


def disabled(*names: str) -> AbstractContextManager[None]:
    """Disable the plugins of these names within a context: `with thunder.plugins.disabled("acme"):`."""
    return get_manager().disabled(*names)


__getattr__ = partial(missing_name, __name__)
