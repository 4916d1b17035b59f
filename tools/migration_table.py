"""Writes the table of names in ``docs/migrating.md``.

python tools/migration_table.py [--check]    the page; or whether it is up to date
"""

from __future__ import annotations

import argparse
from pathlib import Path

from thunder.plugins import Alias, Replaced
from thunder_migration.names import ABSENT_MODULES, NAMES

PAGE = Path(__file__).parents[1] / "docs" / "migrating.md"
BEGIN, END = "<!-- names: begin -->\n", "<!-- names: end -->\n"


def table() -> str:
    """Return the table: a line for each module and meaning."""
    lines = ["| module there | names | here |", "|---|---|---|"]
    for path, row in sorted(NAMES.items()):
        names: dict[str, list[str]] = {}
        for name, meaning in row.items():
            names.setdefault(_meaning(name, meaning), []).append(f"`{name}`")
        lines += [f"| `{path.replace(':', '.')}` | {' '.join(n)} | {m} |" for m, n in names.items()]
    lines += [f"| `{path}` | | {_cell(meaning.advice)} |" for path, meaning in sorted(ABSENT_MODULES.items())]
    return "\n".join(lines) + "\n"


def _meaning(name: str, meaning: Alias | Replaced) -> str:
    if isinstance(meaning, Replaced):
        return f"not here: {_cell(meaning.advice)}"
    attribute = meaning.target.rpartition(":")[2]
    text = "the same" if attribute == name else f"`{attribute}`"
    return f"{text}; {meaning.differs}" if meaning.differs else text


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def page() -> str:
    """Return the text of the page with the table of today."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


def main() -> int:
    """Write the page, or compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    if parser.parse_args().check:
        return int(page() != PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
