"""Summaries of recorded data: a few lines of counts beside each file, which are read when the data changes.

The tool that records the data writes its summary too, `python tests/summaries.py` writes all of them, and a
test compares them with the data.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent


def table(heads: Iterable[str], rows: Iterable[tuple[str, Mapping[str, int]]]) -> str:
    """Return a table of counts in Markdown, a row for each name."""
    heads = list(heads)
    lines = [
        f"| {name} | {' | '.join(str(counts.get(head, 0)) for head in heads)} |" for name, counts in rows
    ]
    return "\n".join([f"| | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads), *lines])


def operators(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many entries of torch's operator database have which verdict, by dtype and by derivative."""
    dtypes = dict.fromkeys(dtype for record in records.values() for dtype in record["forward"])
    rows = {dtype: Counter(r["forward"].get(dtype, "none") for r in records.values()) for dtype in dtypes}
    rows |= {key: Counter(r[key] for r in records.values()) for key in ("gradient", "second_order")}
    means = Counter(record["means"] for record in records.values())
    text = ", ".join(f"{count} by {name}" for name, count in means.most_common())
    heads = ("complete", "partial", "refused", "failed", "none")
    return f"{len(records)} entries: {text}.\n\n{table(heads, rows.items())}"


def models(records: Mapping[str, Mapping[str, Any]]) -> str:
    """Return how many families of models have which verdict, by question."""
    ran = [record for record in records.values() if "class" in record]
    stages = dict.fromkeys(stage for record in ran for stage in record if stage != "class")
    rows = [(s, Counter(r[s]["verdict"] for r in ran if s in r)) for s in stages]
    heads = ("right", "refused", "as compiled", "recompiled", "wrong", "crashed", "not comparable")
    return f"{len(records)} families, of which eager runs {len(ran)}.\n\n{table(heads, rows)}"


def refusals(records: Mapping[str, Mapping[str, Mapping[str, str]]]) -> str:
    """Return how many cases and samples are refused, by the subject of the test."""
    rows = [(s, {"cases": len(c), "samples": sum(map(len, c.values()))}) for s, c in records.items()]
    total = sum(counts["samples"] for _, counts in rows)
    return f"{total} samples are refused.\n\n{table(('cases', 'samples'), rows)}"


#: recorded file → the text of its summary
SUMMARIES: dict[Path, Callable[[Any], str]] = {
    TESTS / "torch_language" / "coverage.json": operators,
    TESTS / "models" / "library.json": models,
    TESTS / "recorded_refusals.json": refusals,
}


def summary_of(data: Path) -> str:
    """Return the summary of a recorded file, as it stands beside it."""
    records = json.loads(data.read_text(encoding="utf-8"))
    return f"# Summary of {data.name}\n\n{SUMMARIES[data](records)}\n"


def write(data: Path) -> None:
    """Write the summary of a recorded file beside it."""
    data.with_suffix(".md").write_text(summary_of(data), encoding="utf-8")


if __name__ == "__main__":
    for path in SUMMARIES:
        write(path)
