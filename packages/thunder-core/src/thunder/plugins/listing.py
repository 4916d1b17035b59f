"""The list of plugins as a table and as JSON: `python -m thunder plugins [--json]`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from thunder.plugins.plugin_info import PluginInfo
from thunder.plugins.specs import ExecutorSpec, Unavailable

__all__ = ["as_json", "as_table"]


#: plugin → kind → names, of what hooks return
Contributed = Mapping[str, Mapping[str, Sequence[str]]]

_NOTHING: Contributed = MappingProxyType({})
#: kind of contribution → the word before its names in the table
_KINDS = {"lookasides": "replaces", "rewrites": "rewrite", "recipes": "recipe"}


def as_table(
    plugins: Iterable[PluginInfo],
    unusable: Mapping[str, Unavailable] = MappingProxyType({}),
    contributed: Contributed = _NOTHING,
) -> str:
    """Return one line per plugin.

    `unusable` are executors, by name, that could not be resolved, and `contributed` has the names of the
    lookasides, rewrite rules and recipes of each plugin.
    """
    rows = [("plugin", "package", "state", "brings", "reason")]
    rows += [
        (
            info.name,
            f"{info.package or ''} {info.version or ''}".strip(),
            info.state.value,
            ", ".join((*_provided(info, unusable), *_named(contributed.get(info.name, {})))),
            "; ".join(_reasons(info, unusable)),
        )
        for info in plugins
    ]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return "\n".join(line.rstrip() for line in lines)


def as_json(
    plugins: Iterable[PluginInfo],
    unusable: Mapping[str, Unavailable] = MappingProxyType({}),
    contributed: Contributed = _NOTHING,
) -> str:
    """Return a JSON list of objects, one per plugin; the other arguments are those of the table."""
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
                **{kind: list(contributed.get(info.name, {}).get(kind, ())) for kind in _KINDS},
            }
            for info in plugins
        ],
        indent=2,
    )


def _provided(info: PluginInfo, unusable: Mapping[str, Unavailable]) -> list[str]:
    executors = [f"{spec.name} ({_status(spec, unusable)})" for spec in info.declares.executors]
    return [*executors, *(spec.name for spec in info.declares.transforms)]


def _named(names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what the hooks of a plugin return: `"replaces m.f"`, `"recipe hf"`."""
    return (f"{word} {name}" for kind, word in _KINDS.items() for name in names.get(kind, ()))


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
