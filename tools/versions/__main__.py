"""`python -m tools.versions record|families|page`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .page import PAGE, written
from .runs import Run, families, keep, run_of, suites


def _said(run: Run) -> None:
    counts = f"{run.passed} passed, {run.skipped} skipped, {len(run.failures)} failed"
    print(f"{run.suite}: {counts}, {run.seconds} s")


def _record(names: Sequence[str], options: Sequence[str], limit: float) -> None:
    known = suites()
    asked = [name if name.startswith("tests/") else f"tests/{name}" for name in names]
    if unknown := sorted({*asked} - {*known}):
        raise SystemExit(f"no folder of tests: {', '.join(unknown)}")
    for suite in asked or known:
        run = run_of(suite, options, limit)
        keep(run)
        _said(run)


def main(arguments: Sequence[str]) -> int:
    """Record runs, or write the tables of those that are recorded."""
    import tools.versions

    parser = argparse.ArgumentParser(
        description=tools.versions.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    record = commands.add_parser("record", help="run folders of tests on the torch that is installed")
    record.add_argument("folders", nargs="*", help="all without any")
    record.add_argument("-n", default="0", help="processes at a time")
    record.add_argument("--limit", type=float, default=3600.0, help="seconds for a folder")
    models = commands.add_parser("families", help="run small models on the transformers that is installed")
    models.add_argument("families", nargs="*", help="all without any; then nothing is recorded")
    page = commands.add_parser("page", help="write the tables of docs/versions.md")
    page.add_argument("--check", action="store_true", help="compare them")
    given = parser.parse_args(arguments)
    if given.command == "record":
        _record(given.folders, ["-n", given.n], given.limit)
    elif given.command == "families":
        run = families(given.families)
        _said(run)
        if given.families:
            return len(run.failures)
        keep(run)
    before = PAGE.read_text(encoding="utf-8")
    after = written(before)
    if given.command == "page" and given.check:
        return int(before != after)
    PAGE.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
