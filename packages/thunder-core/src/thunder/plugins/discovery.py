"""Installed plugins, read from the metadata of distributions; nothing is imported."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import entry_points

from thunder.__about__ import __version__
from thunder.plugins.inline_plugin import InlinePlugin
from thunder.plugins.markers import ENTRY_POINT_GROUP
from thunder.plugins.not_installed import FIRST_PARTY
from thunder.plugins.specs import ExecutorSpec

__all__ = ["Candidate", "installed_plugins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plugin that could be loaded: its import target, and the metadata of its distribution."""

    name: str
    target: str
    distribution: str | None = None
    version: str | None = None
    requirements: tuple[str, ...] = ()
    #: whether it is part of core
    is_builtin: bool = False
    #: the plugin object, if the plugin is not a module
    plugin: InlinePlugin | None = None

    @classmethod
    def of_builtin(cls, spec: ExecutorSpec) -> Candidate:
        """Return the plugin of an executor that is part of core; import nothing."""
        return replace(cls.of_core(spec.name, str(spec.target)), plugin=InlinePlugin((spec,)))

    @classmethod
    def of_core(cls, name: str, module: str) -> Candidate:
        """Return the plugin that is a module of core."""
        return cls(
            name=name, target=module, distribution="thunder-core", version=__version__, is_builtin=True
        )


def installed_plugins() -> list[Candidate]:
    """Return the entry points of the group `thunder.plugins`.

    First-party plugins are first, then the order is by distribution and name: it decides which plugin keeps a
    name that two of them use, and the order of directories must not.
    """
    candidates = [
        Candidate(
            name=entry.name,
            target=entry.value,
            distribution=entry.dist.name if entry.dist is not None else None,
            version=entry.dist.version if entry.dist is not None else None,
            requirements=tuple(entry.dist.requires or ()) if entry.dist is not None else (),
        )
        for entry in entry_points(group=ENTRY_POINT_GROUP)
    ]
    return sorted(candidates, key=lambda c: (c.distribution not in FIRST_PARTY, c.distribution or "", c.name))
