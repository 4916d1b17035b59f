"""The rewrite rules that packages bring, and the hook by which they do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from thunder.plugins import PluginManager, hookspec, list_of, per_generation
from thunder_transforms.rewriting.rewrite_rules import RewriteRule

__all__ = ["named_rules", "package_rules", "thunder_rewrites"]


@hookspec
def thunder_rewrites(executors: frozenset[str]) -> Iterable[RewriteRule]:  # type: ignore[empty-body]
    """Add rules that rewrite programs before they are differentiated: `thunder.core.patterns.rewrite`.

    ``executors`` are the names of the compile's: rules for others are left out, and need not be imported.
    Called at the first compile with these executors, and again after a plugin was registered or unregistered.
    """


def package_rules(manager: PluginManager, executors: Iterable[str]) -> tuple[RewriteRule, ...]:
    """Return the rules of all packages for a compile with these executors, by (rank, name) of the plugins."""
    known, names = _known(manager), frozenset(executors)
    if names not in known:
        known[names] = tuple(_rules(manager, names))
    return tuple(rule for _, rule in known[names])


def named_rules(manager: PluginManager) -> Iterator[tuple[str, str]]:
    """Yield the name of each rule for the executors that are declared, after the name of its plugin."""
    for plugin, rule in _rules(manager, frozenset(spec.name for spec in manager.executor_specs())):
        yield plugin, rule.name


_Rules = tuple[tuple[str, RewriteRule], ...]


@per_generation
def _known(manager: PluginManager) -> dict[frozenset[str], _Rules]:
    """Return executors → the rules for them, each after the name of its plugin: none are known yet."""
    return {}


def _rules(manager: PluginManager, executors: frozenset[str]) -> Iterator[tuple[str, RewriteRule]]:
    for plugin, result in manager.call("thunder_rewrites", executors=executors):
        hint = "thunder.core.patterns.rewrite(pattern, replacement) returns one."
        for rule in list_of(RewriteRule, manager, plugin, "thunder_rewrites", result, hint):
            yield plugin, rule
