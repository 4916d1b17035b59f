"""The list of plugins as a table and as JSON: `python -m thunder plugins [--json]`."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from thunder.base.text_tables import aligned
from thunder.plugins.plugin_info import PluginInfo
from thunder.plugins.specs import ExecutorSpec, Unavailable

__all__ = ["as_json", "as_table"]


#: plugin → kind → names, of what hooks return
Contributed = Mapping[str, Mapping[str, Sequence[str]]]

_NOTHING: Contributed = MappingProxyType({})
#: kind of contribution → the words before its names in the table; a kind of a package's hook is its own
_WORDS = {"lookasides": "replaces", "recipes": "recipe", "session_rules": "rules of"}
#: of a kind of which a plugin brings more, the table has the number; JSON has the names
_LISTED = 4


def as_table(
    plugins: Iterable[PluginInfo],
    unusable: Mapping[str, Unavailable] = MappingProxyType({}),
    contributed: Contributed = _NOTHING,
    *,
    width: int | None = None,
) -> str:
    """Return one row per plugin, with what it lacks below it.

    `unusable` are executors, by name, that could not be resolved, and `contributed` has the names of the
    lookasides, recipes and session rules of each plugin, and what it returns to hooks of packages. `width` is
    that of the terminal, in characters.
    """
    infos = list(plugins)
    rows = [("plugin", "package", "state", "brings")]
    rows += [
        (
            info.name,
            f"{info.package or ''} {info.version or ''}".strip(),
            info.state.value,
            ", ".join((*_provided(info, unusable), *_named(contributed.get(info.name, {})))),
        )
        for info in infos
    ]
    head, *lines = aligned(rows, width)
    text = [head]
    for info, line in zip(infos, lines, strict=True):
        text += [line, *(_indented(reason, width) for reason in _reasons(info, unusable))]
    return "\n".join(text)


def as_json(
    plugins: Iterable[PluginInfo],
    unusable: Mapping[str, Unavailable] = MappingProxyType({}),
    contributed: Contributed = _NOTHING,
) -> str:
    """Return a JSON list of objects, one per plugin; the other arguments are those of the table."""
    kinds = dict.fromkeys((*_WORDS, *(kind for names in contributed.values() for kind in names)))
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
                **{kind: list(contributed.get(info.name, {}).get(kind, ())) for kind in kinds},
            }
            for info in plugins
        ],
        indent=2,
    )


def _indented(reason: str, width: int | None) -> str:
    lines = textwrap.wrap(reason, width - 6, break_on_hyphens=False) if width is not None else [reason]
    return "    - " + "\n      ".join(lines)


def _provided(info: PluginInfo, unusable: Mapping[str, Unavailable]) -> list[str]:
    executors = [f"{spec.name} ({_status(spec, unusable)})" for spec in info.declares.executors]
    return [*executors, *(spec.name for spec in info.declares.transforms)]


def _named(names: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Yield what the hooks of a plugin return: `"replaces m.f"`, `"recipe hf"`, `"14 recipes"`."""
    for kind, listed in names.items():
        if len(listed) > _LISTED:
            yield f"{len(listed)} {kind}"
        else:
            yield from (f"{_WORDS.get(kind, kind)} {name}" for name in listed)


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
