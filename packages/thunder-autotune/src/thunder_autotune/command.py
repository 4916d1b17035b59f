"""`python -m thunder tune`: lock files of placements, shown, merged, pruned, verified and measured.

python -m thunder tune show thunder.lock.toml
python -m thunder tune measure model.py:model --args "torch.randn(8, 64)" -o thunder.lock.toml
python -m thunder tune verify thunder.lock.toml model.py:model --args "torch.randn(8, 64)"
python -m thunder tune merge thunder.lock.toml mine.lock.toml theirs.lock.toml
python -m thunder tune prune thunder.lock.toml
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import thunder
from thunder.core.errors import ThunderError
from thunder.examine import add_program_arguments, named_executors, named_program
from thunder.extend import get_all_executors
from thunder_autotune.entries import CALLS, Entry, time_text
from thunder_autotune.lock_files import merged, read
from thunder_autotune.lock_writing import write
from thunder_autotune.placement import Placed
from thunder_autotune.profiles import counted, versions_of
from thunder_autotune.tuning import autotune
from thunder_bisect.command import print_error

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command and its parts."""
    parser = commands.add_parser(
        "tune",
        help="which executor runs which call, by measurement: lock files",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parts = parser.add_subparsers(dest="part", required=True)
    show = parts.add_parser("show", help="print what a lock file has")
    show.add_argument("lock", metavar="FILE")
    show.set_defaults(run=_reporting(_show))
    merge = parts.add_parser("merge", help="write a lock file with the entries of others, the last first")
    merge.add_argument("output", metavar="OUTPUT")
    merge.add_argument("locks", metavar="FILE", nargs="+")
    merge.set_defaults(run=_reporting(_merge))
    prune = parts.add_parser("prune", help="remove entries of absent executors and of other versions")
    prune.add_argument("lock", metavar="FILE")
    prune.set_defaults(run=_reporting(_prune))
    verify = parts.add_parser("verify", help="fail if a program is not run as a lock file says")
    verify.add_argument("lock", metavar="FILE")
    add_program_arguments(verify)
    verify.set_defaults(run=_reporting(_verify))
    measure = parts.add_parser("measure", help="measure a program, and add what was decided to a lock file")
    measure.add_argument("-o", "--output", metavar="FILE", default="thunder.lock.toml")
    measure.add_argument("--budget", metavar="SECONDS", type=float, default=60.0)
    add_program_arguments(measure)
    measure.set_defaults(run=_reporting(_measure))


def _reporting(run: Any) -> Any:
    """Return the function of a part that prints errors of thunder and then returns 2."""

    def reported(options: argparse.Namespace) -> int:
        try:
            return int(run(options))
        except ThunderError as error:
            return print_error(error)

    return reported


def _show(options: argparse.Namespace) -> int:
    for entry in read(options.lock):
        what = entry.key if entry.kind == "call" else f"region {entry.key} of {entry.calls}"
        print(f"{entry.executor:12} {what}")
        print(f"{'':12} {entry.text()}; by default {entry.default}; on {entry.profile}")
        for line in (entry.reason, *_stale(entry), *_absent(entry)):
            if line:
                print(f"{'':12} {line}")
    return 0


def _stale(entry: Entry) -> Iterator[str]:
    for name, (then, now) in entry.is_stale(_versions()).items():
        yield f"measured with {name} {then}, and this is {now}"


def _absent(entry: Entry) -> Iterator[str]:
    name = entry.way.executor
    if name != CALLS and name not in {e.name for e in get_all_executors()}:
        yield f"{name} is not installed"


def _versions() -> dict[str, str]:
    return versions_of(get_all_executors())


def _merge(options: argparse.Namespace) -> int:
    entries = merged(*(read(path) for path in options.locks))
    write(options.output, entries)
    print(f"{options.output} has decisions about {counted(len(entries), 'call')} and regions")
    return 0


def _prune(options: argparse.Namespace) -> int:
    entries = read(options.lock)
    removed = [entry for entry in entries if any(_stale(entry)) or any(_absent(entry))]
    write(options.lock, entries.without(removed))
    for entry in removed:
        print(f"removed {entry.key}: {(*_stale(entry), *_absent(entry))[0]}")
    print(f"{len(removed)} of {len(entries)} entries removed")
    return 0


def _verify(options: argparse.Namespace) -> int:
    """Return 1 if the program is not run as the file says."""
    read(options.lock)
    function, arguments = named_program(options.target, options.args)
    compiled = thunder.jit(
        function,
        executors=named_executors(options.executors),
        placement=options.lock,
        require_placement=True,
    )
    try:
        compiled(*arguments)
    except thunder.RequirementNotMet as error:
        print(error)
        return 1
    notes = [note for note in thunder.explain(compiled).notes if isinstance(note, Placed)]
    missing = [text for note in notes for text in note.missing]
    for text in missing:
        print(f"not in {options.lock}: {text}")
    print(f"{options.target} is run as {options.lock} says" if not missing else "measure again")
    return int(bool(missing))


def _measure(options: argparse.Namespace) -> int:
    function, arguments = named_program(options.target, options.args)
    compiled = thunder.jit(function, executors=named_executors(options.executors))
    tuning = autotune(compiled, *arguments, budget_s=options.budget, lock=options.output)
    print(tuning)
    if tuning.default is not None and tuning.tuned is not None:
        print(f"a call takes {time_text(tuning.tuned.us)}, by default {time_text(tuning.default.us)}")
    return 0
