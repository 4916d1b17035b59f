"""The parts of a compile that come from plugins, and change when plugins are registered.

    compiled(x)                       compiles without the plugin's replacements and stages
    manager.register(plugin, "acme")  the entry is set aside
    compiled(x)                       compiles again, with them
    manager.unregister("acme")        the first entry is used again

No call checks for this: the manager notifies the compiled objects when its plugins have changed.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from thunder.base.errors import InvalidArgument
from thunder.compiler.replaceable_functions import replacement_of
from thunder.frontend.traced_replacements import Replacement, full_name
from thunder.passes.transform import Transform, calling_hook, defines_hook
from thunder.plugins.contributions import isolated, lookasides
from thunder.plugins.manager import PluginManager, get_manager
from thunder.plugins.specs import Lookaside

__all__ = [
    "PluginContributions",
    "contributions_since",
    "lookasides_of",
    "plugin_contributions",
    "replacements_of",
]


#: the hooks of core whose implementations change what is compiled, and what has changed in words; those that
#: packages define may change it too
_HOOKS = {
    "thunder_pipeline": "plugins with stages",
    "thunder_session_rules": "plugins with session rules",
    "thunder_cache_state": "plugins with state",
}


@dataclass(frozen=True)
class PluginContributions:
    """The replacements of plugins, and the hooks by which plugins change programs."""

    replacements: tuple[Replacement, ...] = ()
    #: the hook → the implementations of it, with the names of their plugins
    hooks: Mapping[str, tuple[tuple[str, Callable[..., Any]], ...]] = field(default_factory=dict)

    def differences(self, other: PluginContributions) -> Iterator[tuple[str, list[str], list[str]]]:
        """Yield what differs: its kind, then the names here and there."""
        if self.replacements != other.replacements:
            yield (
                "lookasides of plugins",
                [_text(replacement) for replacement in self.replacements],
                [_text(replacement) for replacement in other.replacements],
            )
        for hook in dict.fromkeys((*self.hooks, *other.hooks)):
            here, there = (c.hooks.get(hook, ()) for c in (self, other))
            if here != there:
                kind = _HOOKS.get(hook, f"plugins with {hook}")
                yield kind, [name for name, _ in here], [name for name, _ in there]


def _text(replacement: Replacement) -> str:
    return f"{full_name(replacement.function)} by {full_name(replacement.replace_with)}"


def plugin_contributions() -> PluginContributions:
    """Return what the plugins contribute now."""
    manager = get_manager()
    hooks = {
        hook: tuple((i.plugin_name, i.function) for i in manager.implementations(hook))
        for hook in (*_HOOKS, *manager.added_hooks())
    }
    return PluginContributions(isolated(manager, lambda: _replacements(manager)), hooks)


def contributions_since(before: PluginContributions, loaded: Container[str]) -> PluginContributions:
    """Return the contributions of now, if a program that was read under those before is the same with them.

    A compiler of regions imports libraries, for which plugins have replacements. If these are functions of
    modules that were not `loaded` when the program had been read, it cannot have called them. Else the
    contributions before are returned.
    """
    now = plugin_contributions()
    kept = tuple(r for r in now.replacements if not _is_of_module_since(r.function, loaded))
    return now if replace(now, replacements=kept) == before else before


def _is_of_module_since(function: Any, loaded: Container[str]) -> bool:
    """Return whether a function was defined by a module that was not loaded."""
    module = sys.modules.get(function.__module__)
    is_there = module is not None and vars(module) is getattr(function, "__globals__", None)
    return is_there and function.__module__ not in loaded


_Key = tuple[int, type | None]

#: by plugin; a hook that is called again may return other functions for the same purpose
_first_replacements: weakref.WeakKeyDictionary[Any, dict[_Key, Replacement]] = weakref.WeakKeyDictionary()


def _replacements(manager: PluginManager) -> tuple[Replacement, ...]:
    """Return the replacements of all plugins.

    For a function the first replacement that a plugin has returned is used as long as the plugin exists.
    Raises PluginError where two plugins replace one function, and where a plugin replaces one twice.
    """
    replacements: dict[_Key, tuple[str, Replacement]] = {}
    for implementation, lookaside in lookasides(manager):
        plugin = implementation.plugin_name
        provider = f"plugin {plugin!r} ({manager.source_of(plugin)})"
        try:
            replacement = replacement_of(replace(lookaside, provided_by=provider))
        except InvalidArgument as error:
            text = f"thunder_lookasides of plugin {plugin!r}: {error.asked}"
            raise manager.fault(plugin, text, "thunder_lookasides", error.hint) from error
        if replacement.key in replacements:
            first, name = replacements[replacement.key][0], full_name(replacement.function)
            both = f"plugins {first!r} and {plugin!r} both replace {name}"
            twice = f"plugin {plugin!r} replaces {name} twice"
            raise manager.fault(plugin, both if first != plugin else twice, "thunder_lookasides")
        replacements[replacement.key] = plugin, _first(implementation.plugin, replacement)
    return tuple(replacement for _, replacement in replacements.values())


def _first(plugin: Any, replacement: Replacement) -> Replacement:
    """Return the first replacement that a plugin has returned for a function."""
    try:
        first = _first_replacements.setdefault(plugin, {})
    except TypeError:  # an object without a weak reference or a hash
        return replacement
    return first.setdefault(replacement.key, replacement)


def lookasides_of(transforms: Iterable[Transform]) -> Iterator[Lookaside]:
    """Yield the lookasides of transforms, each with the name of its transform."""
    for transform in transforms:
        if defines_hook(transform, "lookasides"):
            with calling_hook(transform, "lookasides"):
                declared = tuple(transform.lookasides())
            for lookaside in declared:
                yield replace(lookaside, provided_by=type(transform).__name__)


def replacements_of(declared: tuple[object, ...]) -> tuple[Replacement, ...]:
    """Return the replacements of the lookasides that one compile received.

    Raises InvalidArgument for a lookaside that is not possible, and for two of one function.
    """
    replacements: dict[_Key, Replacement] = {}
    for lookaside in declared:
        replacement = replacement_of(lookaside)
        first = replacements.setdefault(replacement.key, replacement)
        if first is not replacement:
            raise InvalidArgument(
                f"two lookasides replace {full_name(replacement.function)}",
                found={
                    "first": f"{full_name(first.replace_with)}, of {first.provided_by}",
                    "second": f"{full_name(replacement.replace_with)}, of {replacement.provided_by}",
                },
                hint="Leave one of them out.",
            )
    return tuple(replacements.values())
