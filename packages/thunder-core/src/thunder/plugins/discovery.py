"""Which plugins are installed: read from the metadata of distributions, without importing anything."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import entry_points

from thunder.__about__ import __version__
from thunder.plugins.inline_plugin import AdHocPlugin
from thunder.plugins.markers import ENTRY_POINT_GROUP
from thunder.plugins.not_installed import FIRST_PARTY
from thunder.plugins.specs import ExecutorSpec

__all__ = ["Candidate", "installed_plugins"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A plugin that could be loaded: where it is, and what its distribution says of itself."""

    name: str
    target: str
    distribution: str | None = None
    version: str | None = None
    requirements: tuple[str, ...] = ()
    #: whether it is part of core
    is_builtin: bool = False
    #: the plugin itself, where it is no module
    plugin: AdHocPlugin | None = None

    @classmethod
    def of_builtin(cls, spec: ExecutorSpec) -> Candidate:
        """The plugin of an executor that is part of core; imports nothing."""
        return replace(cls.of_core(spec.name, str(spec.target)), plugin=AdHocPlugin((spec,)))

    @classmethod
    def of_core(cls, name: str, module: str) -> Candidate:
        """A module of core that is a plugin."""
        return cls(
            name=name, target=module, distribution="thunder-core", version=__version__, is_builtin=True
        )


def installed_plugins() -> list[Candidate]:
    """The entry points of the group `thunder.plugins`: first-party ones first, then by distribution and name.

    The order decides who keeps a name that two of them claim, so it must not be the one of directories.
    """
    found = [
        Candidate(
            name=entry.name,
            target=entry.value,
            distribution=entry.dist.name if entry.dist is not None else None,
            version=entry.dist.version if entry.dist is not None else None,
            requirements=tuple(entry.dist.requires or ()) if entry.dist is not None else (),
        )
        for entry in entry_points(group=ENTRY_POINT_GROUP)
    ]
    return sorted(found, key=lambda c: (c.distribution not in FIRST_PARTY, c.distribution or "", c.name))
