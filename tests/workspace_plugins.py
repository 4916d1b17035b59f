"""The plugins of the workspace's packages, which the development environment has installed."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any, Final


def _plugins(project: Path) -> dict[str, Any]:
    entry_points = tomllib.loads(project.read_text(encoding="utf-8"))["project"].get("entry-points", {})
    return entry_points.get("thunder.plugins", {})  # type: ignore[no-any-return]


#: the names of the plugins
NAMES: Final = tuple(
    name
    for project in sorted(Path(__file__).parents[1].glob("packages/*/pyproject.toml"))
    for name in _plugins(project)
)
