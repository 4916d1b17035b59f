"""What the sweeps found: one record for each entry of torch's operator database, kept in ``coverage.json``.

``tools/operator_sweep.py --record`` and ``tools/gradient_sweep.py --record`` write it,
``tools/coverage_table.py`` makes the table of it that users read, and a test compares it with the rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

import summaries

PATH = Path(__file__).with_name("coverage.json")

#: whether this torch has the database that the records are of; another version has other entries and samples
IS_OF_THIS_TORCH = torch.__version__.startswith("2.13.")


@dataclass(frozen=True, kw_only=True)
class Record:
    """What became of the samples of one entry.

    ``means`` says what runs it: ``"row"``, ``"fallback"`` (no row, so torch runs it as it is),
    ``"interpreted"`` or ``"refused"``. ``forward`` has a verdict for each dtype in which eager has samples on
    the cpu: ``"complete"``, ``"partial"`` (some samples are refused by name), ``"refused"`` or ``"failed"``.
    ``gradient`` and ``second_order`` are verdicts of the same kind, and ``"none"`` where eager has none.
    ``reason`` is why something is refused. ``refused`` counts the refused samples by dtype, and those whose
    gradients are refused under ``"gradient"``: another count fails a sweep.
    """

    means: str = "row"
    forward: Mapping[str, str] = field(default_factory=dict)
    gradient: str = "none"
    second_order: str = "none"
    reason: str = ""
    refused: Mapping[str, int] = field(default_factory=dict)


def load() -> dict[str, Record]:
    """The records by entry."""
    if not PATH.exists():
        return {}
    return {name: Record(**facts) for name, facts in json.loads(PATH.read_text()).items()}


def update(found: Mapping[str, Mapping[str, Any]], entries: Iterable[str]) -> None:
    """Puts new facts into the records, and drops those of entries that the database no longer has."""
    records = load()
    for name, facts in found.items():
        before = records.get(name, Record())
        refused = {**before.refused, **facts.get("refused", {})}
        counts = {key: count for key, count in refused.items() if count}
        records[name] = replace(before, **{**facts, "refused": counts})
    kept = set(entries)
    lines = [
        f"{json.dumps(name)}: {json.dumps(_facts(record), sort_keys=True)}"
        for name, record in sorted(records.items())
        if name in kept
    ]
    PATH.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    summaries.write(PATH)


def _facts(record: Record) -> dict[str, Any]:
    """Return the facts of a record as they are stored: ``refused`` only where a sample is."""
    facts = asdict(record)
    return facts if record.refused else {k: v for k, v in facts.items() if k != "refused"}


def verdict(passed: int, refused: int, failed: int) -> str:
    """The verdict on so many samples."""
    if failed:
        return "failed"
    if refused:
        return "partial" if passed else "refused"
    return "complete" if passed else "none"
