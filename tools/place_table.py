"""Writes the table of what may happen where in ``docs/programs.md``.

python tools/place_table.py [--check]    the page; or whether it is up to date
"""

from __future__ import annotations

import argparse
from pathlib import Path

from thunder.frontend.places import EFFECTS, Place

PAGE = Path(__file__).parents[1] / "docs" / "programs.md"
BEGIN, END = "<!-- places: begin -->\n", "<!-- places: end -->\n"
#: the code of operators is not interpreted: nothing happens there but what the text above the table says
PLACES = [place for place in Place if place is not Place.DECOMPOSITION]


def table() -> str:
    """Return the table: a line for each effect, a column for each place."""
    lines = [
        "| the program | " + " | ".join(place.value for place in PLACES) + " |",
        "|---" * (len(PLACES) + 1) + "|",
    ]
    for effect in EFFECTS:
        lines.append(f"| {effect.name} | " + " | ".join(effect.outcome(p).value for p in PLACES) + " |")
    return "\n".join(lines) + "\n"


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
