"""Names that a plugin declares, and that it or another plugin has declared already."""

from __future__ import annotations

from collections.abc import Iterable

from thunder.base.errors import PluginError
from thunder.plugins.plugin_info import Declarations, PluginInfo

__all__ = ["check_names"]


def check_names(plugin: str, declares: Declarations, others: Iterable[PluginInfo]) -> None:
    """Raise PluginError if a plugin declares a name twice, or one that another plugin declares.

    An option may be declared by several plugins in the same way.
    """
    for other in others:
        _check_against(other, declares)
    names = _executor_names(declares)
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise PluginError(f"plugin {plugin!r} declares executor {sorted(twice)[0]!r} twice")


def _executor_names(declares: Declarations) -> list[str]:
    return [name for spec in declares.executors for name in (spec.name, *spec.aliases)]


def _check_against(other: PluginInfo, declares: Declarations) -> None:
    executors = set(_executor_names(other.declares))
    for name in _executor_names(declares):
        if name in executors:
            raise PluginError(f"executor {name!r} is already provided by plugin {other.name!r}")
    transforms = {spec.name for spec in other.declares.transforms}
    for transform in declares.transforms:
        if transform.name in transforms:
            raise PluginError(f"transform {transform.name!r} is already provided by plugin {other.name!r}")
    options = {option.name: option for option in other.declares.options}
    for option in declares.options:
        if options.get(option.name, option) != option:
            raise PluginError(f"plugin {other.name!r} declares option {option.name!r} differently")
