"""`python -m thunder report`: run a program, and write a page about everything that it has compiled.

    python -m thunder report train.py --steps 3
    python -m thunder report -o page.html --measure train.py --steps 3
    torchrun --nproc-per-node=2 -m thunder report --measure train.py

Options of the report come before the script; what follows the script are its arguments. The page is also
written when the script raises or exits. `--measure` measures time and memory of each statement of what the
script compiles with `thunder.jit`; it is slower then. `--trace-events` writes the times for Perfetto.
Of several processes that torchrun begins, the first one writes the page, with what all of them communicate.
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import thunder
from thunder_report.collection import collect_programs
from thunder_report.measurement import MeasureTransform
from thunder_report.ranks import other_ranks, rank_of, write_rank
from thunder_report.records import noting_programs
from thunder_report.rendering import render
from thunder_report.trace_events import chrome_trace

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "report",
        help="run a program, and write a page about everything that it compiles",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", metavar="FILE", default="report.html", help="the page")
    parser.add_argument("--title", help="the title of the page; by default the script")
    parser.add_argument("--measure", action="store_true", help="measure time and memory of each statement")
    parser.add_argument("--trace-events", metavar="FILE", help="write the times as JSON for Perfetto")
    parser.add_argument("script", metavar="SCRIPT")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENTS")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run the script and write the page; return the script's exit status.

    It is 1 if the script raised, 2 if there is none.
    """
    script = Path(options.script)
    if not script.is_file():
        print(f"{script} is not a file", file=sys.stderr)
        return 2
    with noting_programs() as programs, _measuring() if options.measure else nullcontext():
        status, notes = _run_script(script, options.arguments)
    report = collect_programs(programs, title=options.title or script.name, notes=notes)
    target = Path(options.output)
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    if processes > 1:
        rank, run_name = int(os.environ["RANK"]), _run_name()
        if rank:
            write_rank(target, rank_of(report, rank), run_name)
            return status
        ranks = [rank_of(report, 0), *other_ranks(target, processes, run_name)]
        report = replace(report, extra={"ranks": ranks, "processes": processes})
    target.write_text(render(report), encoding="utf-8")
    if options.trace_events is not None:
        Path(options.trace_events).write_text(json.dumps(chrome_trace(report)), encoding="utf-8")
    compiled = sum(len(program.entries) for program in report.programs)
    print(f"{target}: {len(report.programs)} programs, {compiled} entries", file=sys.stderr)
    return status


def _run_name() -> str:
    """Return what the processes of one run of torchrun have in common."""
    return ":".join(
        os.environ.get(name, "") for name in ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    )


def _run_script(script: Path, arguments: Sequence[str]) -> tuple[int, tuple[str, ...]]:
    """Run a script as `python SCRIPT ARGUMENTS` does; return its exit status, and a note if it raised."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path.insert(0, str(script.resolve().parent))
    try:
        runpy.run_path(str(script), run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0, ()
        print(end.code, file=sys.stderr)
        return 1, ()
    except BaseException as error:  # of the script: the page is about what it did until then
        traceback.print_exc()
        return 1, (f"The program raised {type(error).__name__}: {error}",)
    finally:
        sys.argv, sys.path[:] = argv, path
    return 0, ()


@contextmanager
def _measuring() -> Iterator[None]:
    """Within the context, `thunder.jit` adds a transform that measures to those that it receives."""
    jit = thunder.jit

    def measured(fn: Any = None, /, *, transforms: Any = None, **settings: Any) -> Any:
        if fn is None:
            return lambda function: measured(function, transforms=transforms, **settings)
        given = transforms if isinstance(transforms, (list, tuple)) else [transforms]
        kept = [transform for transform in given if transform is not None]
        return jit(fn, transforms=[*kept, MeasureTransform()], **settings)

    thunder.jit = measured
    try:
        yield
    finally:
        thunder.jit = jit
