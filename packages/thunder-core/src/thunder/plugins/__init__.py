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

from thunder.base.options import Option
from thunder.base.public_names import Alias, NamesOfModules, Replaced, missing_name
from thunder.plugins.load_policy import is_strict
from thunder.plugins.manager import PluginManager, get_manager
from thunder.plugins.markers import ENTRY_POINT_GROUP, HOOK_API_VERSION, for_executor, hookimpl
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
    "Replaced",
    "TransformSpec",
    "Unavailable",
    "VendorLibrary",
    "disabled",
    "for_executor",
    "get_manager",
    "hookimpl",
    "is_strict",
    "list_plugins",
]


def list_plugins() -> tuple[PluginInfo, ...]:
    """Return every plugin, loaded or not: name, package, version, state, reason, declarations."""
    return get_manager().list_plugins()


def disabled(*names: str) -> AbstractContextManager[None]:
    """Disable the plugins of these names within a context: `with thunder.plugins.disabled("acme"):`."""
    return get_manager().disabled(*names)


__getattr__ = partial(missing_name, __name__)
