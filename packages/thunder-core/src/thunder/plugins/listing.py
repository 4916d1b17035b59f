"""The list of plugins as a table and as JSON: `python -m thunder plugins [--json]`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from thunder.plugins.plugin_info import PluginInfo
from thunder.plugins.specs import ExecutorSpec, Unavailable

__all__ = ["as_json", "as_table"]


def as_table(
    plugins: Iterable[PluginInfo], unusable: Mapping[str, Unavailable] = MappingProxyType({})
) -> str:
    """Return one line per plugin. `unusable` are executors, by name, that could not be resolved."""
    rows = [("plugin", "package", "state", "brings", "reason")]
    rows += [
        (
            info.name,
            f"{info.package or ''} {info.version or ''}".strip(),
            info.state.value,
            ", ".join(_provided(info, unusable)),
            "; ".join(_reasons(info, unusable)),
        )
        for info in plugins
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def as_json(plugins: Iterable[PluginInfo], unusable: Mapping[str, Unavailable] = MappingProxyType({})) -> str:
    """Return a JSON list of objects, one per plugin; `unusable` as for the table."""
    return json.dumps(
        [
            {
                "name": info.name,
                "package": info.package,
                "version": info.version,
                "module": info.module,
                "state": info.state.value,
                "reason": info.reason,
                "executors": [_executor(spec, unusable) for spec in info.declares.executors],
                "transforms": [spec.name for spec in info.declares.transforms],
                "options": [option.name for option in info.declares.options],
            }
            for info in plugins
        ],
        indent=2,
    )


def _provided(info: PluginInfo, unusable: Mapping[str, Unavailable]) -> list[str]:
    executors = [f"{spec.name} ({_status(spec, unusable)})" for spec in info.declares.executors]
    return [*executors, *(spec.name for spec in info.declares.transforms)]


def _status(spec: ExecutorSpec, unusable: Mapping[str, Unavailable]) -> str:
    """Return the rank of an executor, and what it lacks."""
    missing = f", needs {', '.join(spec.missing)}" if spec.missing else ""
    return f"rank {int(spec.rank)}{missing}{', unavailable' if spec.name in unusable else ''}"


def _reasons(info: PluginInfo, unusable: Mapping[str, Unavailable]) -> Iterator[str]:
    if info.reason:
        yield info.reason.partition("\n")[0]
    for spec in info.declares.executors:
        if spec.name in unusable:
            yield f"{spec.name}: {unusable[spec.name].reason}".partition("\n")[0]


def _executor(spec: ExecutorSpec, unusable: Mapping[str, Unavailable]) -> dict[str, object]:
    return {
        "name": spec.name,
        "rank": int(spec.rank),
        "default": spec.default,
        "aliases": list(spec.aliases),
        "missing": list(spec.missing),
        "unavailable": unusable[spec.name].reason if spec.name in unusable else None,
        "description": spec.description,
    }
