"""State of plugins and transforms on which compiled programs depend, for the guards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any

from thunder.base.errors import PluginError
from thunder.base.extension_origin import origin_of
from thunder.passes.transform import Transform, calling_hook, defines_hook
from thunder.plugins.contributions import cache_state, is_hashable
from thunder.plugins.manager import PluginManager, get_manager

__all__ = ["contributed_state"]


def contributed_state(
    transforms: Sequence[Transform], options: Mapping[str, Any]
) -> dict[str, Callable[[], Mapping[str, Any]]]:
    """Return the state that plugins and transforms add to the guards: name → function.

    `options` are those of the compiled object.
    """
    states: dict[str, Callable[[], Mapping[str, Any]]] = {
        f"transforms[{position}], {type(transform).__name__}": functools.partial(_state_of, transform)
        for position, transform in enumerate(transforms)
        if defines_hook(transform, "cache_state")
    }
    plugins = _StateOfPlugins(get_manager(), options)
    if plugins.is_any():
        states["plugins"] = plugins
    return states


class _StateOfPlugins:
    """A reader of what `cache_state` returns, for each call of a program, which checks only what is new."""

    def __init__(self, manager: PluginManager, options: Mapping[str, Any]) -> None:
        self._manager = manager
        self._options = options
        self._implementations: Sequence[Any] | None = None
        #: copies of what the hooks returned, since a plugin may change its mapping in place
        self._returned: list[dict[str, Any]] = []
        self._state: Mapping[str, Hashable] = {}

    def __call__(self) -> Mapping[str, Hashable]:
        implementations = self._manager.implementations("thunder_cache_state")
        if implementations is self._implementations and self._is_unchanged(implementations):
            return self._state
        self._state = cache_state(self._manager, self._options)
        # a plugin that broke the contract is disabled now, and the implementations are others
        self._implementations = self._manager.implementations("thunder_cache_state")
        returned: list[Any] = [self._call(hook) for hook in self._implementations]
        self._returned = [dict(state or {}) for state in returned]
        if {name: value for state in self._returned for name, value in state.items()} != self._state:
            self._implementations = None  # it has changed meanwhile
        return self._state

    def is_any(self) -> bool:
        """Return whether a plugin has state for these options: one that returns None has not."""
        for hook in self._manager.implementations("thunder_cache_state"):
            try:
                if self._call(hook) is not None:
                    return True
            except Exception:
                return True  # `cache_state` calls the hook again, and says which plugin it is
        return False

    def _call(self, hook: Any) -> Any:
        return hook.function(*(self._options for _ in hook.argnames))

    def _is_unchanged(self, implementations: Iterable[Any]) -> bool:
        try:
            returned = [self._call(hook) for hook in implementations]
        except Exception:
            return False  # `cache_state` calls the hook again, and says which plugin it is
        return all(map(_is_same, returned, self._returned))


def _is_same(state: Any, before: Mapping[str, Any]) -> bool:
    """Return whether a mapping has the same names and values, of the same types."""
    if not isinstance(state, dict | Mapping) or len(state) != len(before):
        return False
    for name, value in state.items():
        known = before.get(name, before)
        if value is not known and (type(value) is not type(known) or value != known):
            return False
    return True


def _state_of(transform: Transform) -> dict[str, Hashable]:
    """Return a copy of a transform's state, which may change in place later."""
    with calling_hook(transform, "cache_state"):
        state = transform.cache_state()
    if isinstance(state, Mapping) and all(map(is_hashable, state.values())):
        return dict(state)
    raise PluginError(
        f"{type(transform).__name__}.cache_state returned {state!r}",
        hint="It returns a mapping of names to hashable values, which are guarded by equality.",
    ).blame(origin_of(type(transform)))
