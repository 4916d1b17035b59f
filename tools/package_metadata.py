"""What the packages of the workspace say of themselves in their pyproject.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, kw_only=True, eq=False)
class Package:
    """A package: required distributions, those of its extras, and the module of its plugin."""

    name: str
    description: str
    requires: frozenset[str]
    extras: dict[str, frozenset[str]]
    plugin: str | None

    @property
    def optional(self) -> frozenset[str]:
        """The distributions of all extras."""
        return frozenset().union(*self.extras.values())


def packages() -> dict[str, Package]:
    """Return the packages of the workspace by name."""
    found = {}
    for path in sorted(ROOT.glob("packages/*/pyproject.toml")):
        project: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        plugins = project.get("entry-points", {}).get("thunder.plugins", {})
        found[project["name"]] = Package(
            name=project["name"],
            description=project["description"],
            requires=_names(project["dependencies"]),
            extras={name: _names(of) for name, of in project.get("optional-dependencies", {}).items()},
            plugin=next(iter(plugins.values()), None),
        )
    return found


def _names(requirements: Sequence[str]) -> frozenset[str]:
    return frozenset(re.split(r"[^\w-]", requirement)[0] for requirement in requirements)
