"""Environment variables that decide which plugins load.

| variable | effect |
|---|---|
| `THUNDER_PLUGINS=a,b` | of the installed plugins, only these are loaded |
| `THUNDER_DISABLE_PLUGINS=c` | these are not loaded, built-in ones included |
| `THUNDER_PLUGIN_AUTOLOAD=0` | no installed plugin is loaded |
| `THUNDER_PLUGIN_STRICT=1` | a plugin that cannot be loaded, or region that fails, is an error, no warning |

Names are those of plugins or of distributions. A plugin that is not loaded is not imported either.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from thunder.plugins.discovery import Candidate

__all__ = ["LoadPolicy", "is_strict"]


def is_strict(environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether what a plugin cannot do is an error, not a warning: `THUNDER_PLUGIN_STRICT=1`."""
    return environment.get("THUNDER_PLUGIN_STRICT", "0") not in ("", "0")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPolicy:
    """Which plugins may load, and what happens when one cannot."""

    only: frozenset[str] | None = None
    blocked: frozenset[str] = frozenset()
    autoload: bool = True
    strict: bool = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> LoadPolicy:
        """Read the variables above."""
        only = environment.get("THUNDER_PLUGINS")
        return cls(
            only=None if only is None else _names(only),
            blocked=_names(environment.get("THUNDER_DISABLE_PLUGINS", "")),
            autoload=environment.get("THUNDER_PLUGIN_AUTOLOAD", "1") != "0",
            strict=is_strict(environment),
        )

    def blocks(self, candidate: Candidate) -> str | None:
        """Return why a plugin must not be loaded, or None."""
        names = {_normalised(name) for name in (candidate.name, candidate.distribution) if name}
        if candidate.is_builtin:  # its distribution is core, which cannot be disabled
            names = {_normalised(candidate.name)}
        if names & self.blocked:
            return "blocked by THUNDER_DISABLE_PLUGINS"
        if self.only is not None and not candidate.is_builtin and not names & self.only:
            return "not among THUNDER_PLUGINS"
        return None


def _names(text: str) -> frozenset[str]:
    return frozenset(_normalised(name) for name in text.split(",") if name.strip())


def _normalised(name: str) -> str:
    """Return a name in the form in which package indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name.strip()).lower()
