"""Makes ``docs/operators.md`` of what the sweeps recorded.

python tools/operator_sweep.py --record     the samples of every entry, forward (some minutes)
python tools/gradient_sweep.py --record     their gradients, to second order (some minutes)
python tools/coverage_table.py [--check]    the page; or whether it is up to date
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import thunder.torch  # noqa: F401  (fills the language)
from thunder.base.attribute_paths import find_torch
from thunder.base.langctx import TORCH
from thunder.base.tags import OpTags
from thunder.ir.symbol import Symbol
from thunder.ops.operator import all_rows
from torch_language.categories import CATEGORIES, category
from torch_language.coverage_records import Record, load
from torch_language.database import op_db
from torch_language.entries_without_rows import PARTLY_REFUSED, REFUSED
from torch_language.gradients.differentiated_samples import FIRST_ORDER_ONLY, LEFT_OUT
from torch_language.samples import SKIPPED

PAGE = Path(__file__).parents[1] / "docs" / "operators.md"

_SHORT = {
    "float32": "f32",
    "float64": "f64",
    "int64": "i64",
    "bool": "b8",
    "bfloat16": "bf16",
    "complex64": "c64",
}

_HEAD = """# Operators

What thunder knows of torch's functions, judged by torch's own sample database (`op_db` of torch 2.13): every
sample of an entry is traced, run and compared with eager on the cpu. Metadata and values of whole operators
are equal to eager's, those of their decompositions close. Gradients are compared in float64, float32 and
complex128, second derivatives in float64 and complex128.

- **row**: thunder knows the operator: what it computes, what it consists of, its gradient.
- **fallback**: it has no row, and torch runs it as it is, also under training. `thunder.explain` says so, and
  `thunder.jit(…, operator_fallback="error")` refuses it.
- **interpreted**: it is Python code of torch's, which is followed as the program's own is.
- **refused**: a typed error names it, the line of the program, and the way out.

Dtypes are those in which all samples that eager takes are right; those in parentheses have samples that are
refused by name. A dash means that eager has none. This page is made by `tools/coverage_table.py` of what
`tools/operator_sweep.py --record` and `tools/gradient_sweep.py --record` found.
"""


def page(records: Mapping[str, Record]) -> str:
    """The text of the page."""
    grouped = {title: {n: r for n, r in records.items() if category(n) == title} for title in CATEGORIES}
    parts = [_HEAD, "## Summary\n", _summary(grouped)]
    for title, group in grouped.items():
        parts += [
            f"\n## {title}\n",
            _table(("entry", "by", "forward", "gradient", "second order", ""), map(_row, group.items())),
        ]
    parts += [
        "\n## Rows that the database lacks\n",
        "Methods, in-place twins, conversions and layers, tested on their own:\n",
        ", ".join(f"`{row_id}`" for row_id in rows_beside_the_database()) + ".",
    ]
    return "\n".join(parts) + "\n"


def is_forward(record: Record) -> bool:
    """Whether an entry passes in float32 and float64; without samples in them, in what it has."""
    verdicts = [record.forward.get(d) for d in ("float32", "float64")]
    known = [v for v in verdicts if v is not None] or list(record.forward.values())
    return bool(known) and all(v == "complete" for v in known)


COUNTS: dict[str, Callable[[Record], bool]] = {
    "entries": lambda r: True,
    "forward": is_forward,
    "gradient": lambda r: r.gradient == "complete",
    "second order": lambda r: r.second_order == "complete",
    "by fallback": lambda r: r.means == "fallback" and is_forward(r),
    "in part": lambda r: "partial" in r.forward.values(),
    "refused": lambda r: r.means == "refused",
}


def counted(records: Iterable[Record]) -> dict[str, int]:
    """How many records each column of the summary counts."""
    given = list(records)
    return {name: sum(map(holds, given)) for name, holds in COUNTS.items()}


def _summary(grouped: Mapping[str, Mapping[str, Record]]) -> str:
    lines = [(title, *map(str, counted(group.values()).values())) for title, group in grouped.items()]
    everything = counted(r for group in grouped.values() for r in group.values())
    lines.append(("**all**", *(f"**{n}**" for n in everything.values())))
    return _table(("category", *COUNTS), lines)


def _row(item: tuple[str, Record]) -> tuple[str, ...]:
    name, record = item
    complete = [short for d, short in _SHORT.items() if record.forward.get(d) == "complete"]
    partial = [f"({short})" for d, short in _SHORT.items() if record.forward.get(d) == "partial"]
    notes = [PARTLY_REFUSED.get(name), REFUSED.get(name), LEFT_OUT.get(name), FIRST_ORDER_ONLY.get(name)]
    return (
        f"`{name}`",
        record.means,
        " ".join([*complete, *partial]) or "—",
        _mark(record.gradient),
        _mark(record.second_order),
        "; ".join(note for note in notes if note),
    )


def _mark(verdict: str) -> str:
    return {"complete": "yes", "none": "—", "partial": "in part"}.get(verdict, verdict)


def _table(head: tuple[str, ...], lines: Iterable[tuple[str, ...]]) -> str:
    rule = tuple("---" for _ in head)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *lines)) + "\n"


def rows_beside_the_database() -> list[str]:
    """Ids of the language's rows for which the database has no samples."""
    sampled = [fn for op in op_db if not op.name.startswith(SKIPPED) for fn in _variants_of(op)]
    met = {meaning.id for meaning in map(TORCH.resolve, sampled) if isinstance(meaning, Symbol)}
    return sorted(
        row.id
        for row in all_rows()
        if row.module == "ltorch"
        and row.id.startswith("torch.")
        and row.id not in met
        and find_torch(row.id) not in sampled
        and OpTags.FALLBACK not in row.tags
    )


def _variants_of(op: Any) -> list[Any]:
    variants = (
        op.op,
        op.method_variant,
        op.inplace_variant,
        op.operator_variant,
        op.inplace_operator_variant,
    )
    return [variant for variant in variants if variant is not None]


def main() -> int:
    """Writes the page, or says whether it is up to date."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; return 1 if the page is old")
    options = parser.parse_args()
    records = load()
    text = page(records)
    print(counted(records.values()))
    if options.check:
        return 0 if PAGE.exists() and PAGE.read_text(encoding="utf-8") == text else 1
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
