"""The manager's entry for each plugin: its origin, its state, its declarations."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from thunder.base.errors import PluginError
from thunder.base.options import Option
from thunder.executor_base.executor import Executor, Rank
from thunder.plugins.specs import ExecutorSpec, TransformSpec

__all__ = ["Declarations", "PluginInfo", "PluginState", "collect_declarations"]


class PluginState(StrEnum):
    """Whether a plugin is loaded, and why not."""

    BUILTIN = "builtin"  # part of core, loaded
    LOADED = "loaded"
    RUNTIME = "runtime"  # registered by the program
    UNAVAILABLE = "unavailable"  # loaded; a library that its executors require is absent
    DISABLED = "disabled"  # kept out by the environment; not imported
    INCOMPATIBLE = "incompatible"  # needs another version of core or of the hook API
    FAILED = "failed"  # could not be imported, or broke the contract of a hook


@dataclass(frozen=True, slots=True)
class Declarations:
    """The declarations of a plugin, collected when it was loaded."""

    executors: tuple[ExecutorSpec, ...] = ()
    transforms: tuple[TransformSpec, ...] = ()
    options: tuple[Option, ...] = ()

    @property
    def rank(self) -> int:
        """The smallest rank of the plugin's executors; plugins are ordered by it."""
        return min((spec.rank for spec in self.executors), default=Rank.EAGER)


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """One plugin: its origin, whether it is loaded, why not, and what it declares."""

    name: str
    state: PluginState
    package: str | None = None
    version: str | None = None
    module: str | None = None
    reason: str | None = None
    declares: Declarations = Declarations()

    @property
    def is_loaded(self) -> bool:
        """Whether its hooks are called."""
        return self.state in (
            PluginState.BUILTIN,
            PluginState.LOADED,
            PluginState.RUNTIME,
            PluginState.UNAVAILABLE,
        )

    @property
    def source(self) -> str:
        """The package and module, as text for errors: `thunder-acme 0.3.1, thunder_acme`."""
        package = f"{self.package} {self.version or ''}".strip() if self.package is not None else None
        return ", ".join(part for part in (package, self.module) if part) or "the program"


def collect_declarations(call: Callable[[str], Any]) -> Declarations:
    """Return the checked results of the declaring hooks; `call` returns a hook's result.

    Raises PluginError for results of other types.
    """
    specs = [
        ExecutorSpec(item.name, item, rank=item.rank, aliases=item.aliases)
        if isinstance(item, Executor)
        else item
        for item in _items(call, "thunder_executors")
    ]
    transforms = _items(call, "thunder_transforms")
    options = _items(call, "thunder_options")
    _check_types("thunder_executors", specs, ExecutorSpec)
    _check_types("thunder_transforms", transforms, TransformSpec)
    _check_types("thunder_options", options, Option)
    return Declarations(tuple(specs), tuple(transforms), tuple(options))


def _items(call: Callable[[str], Any], hook: str) -> list[Any]:
    result = call(hook)
    if result is None:
        return []
    if not isinstance(result, Iterable):
        raise PluginError(f"{hook} returned {result!r}", hint="It returns a list, or is a generator.")
    return list(result)


def _check_types(hook: str, items: Iterable[object], expected: type) -> None:
    for item in items:
        if not isinstance(item, expected):
            raise PluginError(f"{hook} returned {item!r}, which is not of type {expected.__name__}")
