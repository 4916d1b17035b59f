"""`python -m thunder cache`: the compiled artefacts on disk."""

from __future__ import annotations

import argparse
from collections import defaultdict
from pathlib import Path
from typing import Any

from thunder.base.artefact_cache import Entry, cache_directory, clear, entries, is_intact, prune, size_limit


def add(commands: Any) -> None:
    """Add the command's parser."""
    parser = commands.add_parser("cache", help="the compiled artefacts that packages keep on disk")
    parser.add_argument("package", nargs="?", help="of this package only")
    parser.add_argument("--directory", type=Path, help="those in another directory, as THUNDER_PROGRAM_CACHE")
    parser.add_argument("--clear", action="store_true", help="remove them")
    parser.add_argument("--verify", action="store_true", help="check that each file is what was written")
    parser.add_argument(
        "--prune", type=int, metavar="BYTES", help="remove old ones, of all packages, beyond it"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the size of each package's artefacts, check or remove them; return 1 if one is damaged."""
    directory = options.directory or cache_directory()
    if options.clear:
        print(f"removed {clear(options.package, directory)} artefacts from {directory}")
        return 0
    if options.prune is not None:
        prune(options.prune, directory)
    by_package: dict[str, list[Entry]] = defaultdict(list)
    for entry in entries(directory):
        if options.package in (None, entry.package):
            by_package[entry.package].append(entry)
    print(f"{directory}, of at most {_megabytes(size_limit())}")
    for package, files in by_package.items():
        print(f"  {package}: {len(files)} artefacts, {_megabytes(sum(entry.size for entry in files))}")
    damaged = [e for files in by_package.values() for e in files if options.verify and not is_intact(e.path)]
    for entry in damaged:
        print(f"  damaged: {entry.path}")
    return int(bool(damaged))


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB"
