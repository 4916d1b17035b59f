"""The list of plugins as a table and as JSON: `python -m thunder plugins [--json]`."""

from __future__ import annotations

import json
from collections.abc import Iterable

from thunder.plugins.records import PluginInfo
from thunder.plugins.specs import ExecutorSpec

__all__ = ["as_json", "as_table"]


def as_table(plugins: Iterable[PluginInfo]) -> str:
    """One line per plugin."""
    rows = [("plugin", "package", "state", "brings", "reason")]
    rows += [
        (
            info.name,
            f"{info.package or ''} {info.version or ''}".strip(),
            info.state.value,
            ", ".join(_contributions(info)),
            (info.reason or "").partition("\n")[0],
        )
        for info in plugins
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def as_json(plugins: Iterable[PluginInfo]) -> str:
    """A list of objects, one per plugin."""
    return json.dumps(
        [
            {
                "name": info.name,
                "package": info.package,
                "version": info.version,
                "module": info.module,
                "state": info.state.value,
                "reason": info.reason,
                "executors": [_executor(spec) for spec in info.declares.executors],
                "transforms": [spec.name for spec in info.declares.transforms],
                "options": [option.name for option in info.declares.options],
            }
            for info in plugins
        ],
        indent=2,
    )


def _contributions(info: PluginInfo) -> list[str]:
    executors = [f"{spec.name} ({_standing(spec)})" for spec in info.declares.executors]
    return [*executors, *(spec.name for spec in info.declares.transforms)]


def _standing(spec: ExecutorSpec) -> str:
    """The rank of an executor, and what it lacks."""
    missing = f", needs {', '.join(spec.missing)}" if spec.missing else ""
    return f"rank {int(spec.rank)}{missing}"


def _executor(spec: ExecutorSpec) -> dict[str, object]:
    return {
        "name": spec.name,
        "rank": int(spec.rank),
        "default": spec.default,
        "aliases": list(spec.aliases),
        "missing": list(spec.missing),
        "description": spec.description,
    }
