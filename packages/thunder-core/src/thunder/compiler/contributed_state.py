"""State of plugins and transforms on which compiled programs depend, for the guards."""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from thunder.base.errors import PluginError
from thunder.base.extension_origin import origin_of
from thunder.passes.transform import Transform, calling_hook, defines_hook
from thunder.plugins.contributions import cache_state, is_hashable
from thunder.plugins.manager import get_manager


def contributed_state(transforms: Sequence[Transform]) -> dict[str, Callable[[], Mapping[str, Any]]]:
    """Return the state that plugins and transforms add to the guards: name → function."""
    states: dict[str, Callable[[], Mapping[str, Any]]] = {
        f"transforms[{position}], {type(transform).__name__}": functools.partial(_state_of, transform)
        for position, transform in enumerate(transforms)
        if defines_hook(transform, "cache_state")
    }
    if get_manager().implementations("thunder_cache_state"):
        states["plugins"] = functools.partial(cache_state, get_manager())
    return states


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
