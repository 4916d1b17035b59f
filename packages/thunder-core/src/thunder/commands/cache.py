"""`python -m thunder cache`: the compiled artefacts on disk."""

from __future__ import annotations

import argparse
from collections import defaultdict
from typing import Any

from thunder.base.artefact_cache import Entry, cache_directory, clear, entries, size_limit


def add(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser("cache", help="the compiled artefacts that packages keep on disk")
    parser.add_argument("package", nargs="?", help="of this package only")
    parser.add_argument("--clear", action="store_true", help="remove them")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the size of each package's artefacts, or remove them; return 0."""
    if options.clear:
        print(f"removed {clear(options.package)} artefacts from {cache_directory()}")
        return 0
    by_package: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries():
        if options.package in (None, entry.package):
            by_package[entry.package].append(entry)
    print(f"{cache_directory()}, of at most {_megabytes(size_limit())}")
    for package, files in by_package.items():
        print(f"  {package}: {len(files)} artefacts, {_megabytes(sum(entry.size for entry in files))}")
    return 0


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
