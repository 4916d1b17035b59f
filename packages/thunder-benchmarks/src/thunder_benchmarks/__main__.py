"""Measure tables: eager, torch.compile, thunder with and without TorchInductor, and lightning-thunder.

    python -m thunder_benchmarks TABLE… [--quick] [--workloads …] [--peer-python PATH] [--out FOLDER]

Each way runs in processes of its own, with one thread; a way's first results are compared with eager's before
it is measured, and a way whose results differ is an error. A table is printed and
written as markdown, as a picture and, with every measured value, as lines of JSON.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from .machine import machine_facts, one_line
from .measurement import Entry, Plan, measure
from .report import Rendered, markdown, rendered
from .tables import MODES, STEP, TABLES
from .ways import WAYS
from .worker_process import Interpreters
from .workloads import DTYPES, WORKLOADS


def command_line() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m thunder_benchmarks",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("tables", nargs="+", choices=[*TABLES, "all"], metavar="TABLE", help=f"{', '.join(TABLES)}, or all")
    add("--quick", action="store_true", help="few workloads, few rounds")
    add("--workloads", nargs="+", choices=WORKLOADS, metavar="NAME", help=f"of {', '.join(WORKLOADS)}")
    add("--ways", nargs="+", choices=WAYS, metavar="WAY", help=f"of {', '.join(WAYS)}")
    add("--dtypes", nargs="+", choices=DTYPES, metavar="DTYPE", help=f"of {', '.join(DTYPES)}")
    add(
        "--modes", nargs="+", choices=(*MODES, *STEP), metavar="MODE", help=f"of {', '.join((*MODES, *STEP))}"
    )
    add("--rounds", type=int, help="times that each value is measured")
    add("--threads", type=int, default=1, help="of torch; with several the time that passes is measured")
    add("--jobs", type=int, default=2, help="ways that are compiled at once (default: %(default)s)")
    add("--peer-python", metavar="PATH", help="an interpreter that has lightning-thunder")
    add("--caches", type=Path, metavar="FOLDER", help="compiled code is kept there for later runs")
    add("--update", type=Path, metavar="FILE", help="a markdown file in which the tables are replaced")
    add("--out", type=Path, metavar="FOLDER", default=Path("benchmark-results"), help="default: %(default)s")
    return parser


def plan_of(name: str, arguments: argparse.Namespace, interpreters: Interpreters, caches: Path) -> Plan:
    """Return a table with what the command line chose of it."""
    table, quick = TABLES[name], arguments.quick
    workloads = (quick and table.quick_workloads) or table.workloads
    return Plan(
        table,
        arguments.workloads or workloads,
        arguments.dtypes or (table.quick_dtypes if quick else table.dtypes),
        arguments.modes or (table.quick_modes if quick else table.modes),
        arguments.ways or table.ways,
        arguments.rounds or (table.quick_rounds if quick else table.rounds),
        interpreters,
        caches,
        arguments.jobs,
        lambda text: print(f"{name}: {text}", file=sys.stderr, flush=True),
    )


def show(table: Rendered) -> None:
    """Print a table: with rich on a terminal where that is installed, else as markdown."""
    if not sys.stdout.isatty() or importlib.util.find_spec("rich") is None:
        print(f"{table.title}\n\n{markdown(table)}")
        return
    # Imported here, not above: it is an optional dependency.
    from rich.console import Console
    from rich.table import Table as RichTable

    grid = RichTable(title=table.title)
    for number, head in enumerate(table.head):
        grid.add_column(head, justify="right" if number else "left")
    for row in table.rows:
        grid.add_row(*row)
    Console().print(grid, *table.notes, sep="\n")


def update(document: Path, name: str, text: str) -> None:
    """Replace what a document has between `<!-- NAME -->` and `<!-- end of NAME -->`.

    Raises ValueError if it does not have these lines.
    """
    before, begin, rest = document.read_text(encoding="utf-8").partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- end of {name} -->\n")
    if not begin or not end:
        raise ValueError(f"{document} has no place for the table {name}")
    document.write_text(f"{before}{begin}\n{text}\n{end}{after}", encoding="utf-8")


def run(name: str, plan: Plan, arguments: argparse.Namespace) -> list[Entry]:
    """Measure a table, print it and write its files; return what was measured."""
    facts, folder = machine_facts(arguments.peer_python, arguments.threads), arguments.out
    start = time.monotonic()
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    with (folder / f"{name}.jsonl").open("w", encoding="utf-8") as lines:
        print(json.dumps({"table": name, "machine": facts}, ensure_ascii=False), file=lines, flush=True)
        for entry in measure(plan):
            entries.append(entry)
            line = json.dumps({"table": name, **asdict(entry)}, ensure_ascii=False)
            print(line, file=lines, flush=True)
    table = rendered(plan.table, entries)
    table.notes.append(f"Measured in {time.monotonic() - start:.0f} s: {one_line(facts)}.")
    show(table)
    text = f"{table.title}\n\n{markdown(table)}"
    (folder / f"{name}.md").write_text(text, encoding="utf-8")
    if arguments.update is not None:
        update(arguments.update, name, text)
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture: matplotlib is not installed", file=sys.stderr)
        return entries
    # Imported here, not above: it is an optional dependency.
    from .plots import draw

    draw(plan.table, entries, folder / f"{name}.png")
    return entries


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the tables of a command line; return 1 if a way failed or computed something else, else 0."""
    chosen = command_line().parse_args(arguments)
    names = list(TABLES) if "all" in chosen.tables else list(dict.fromkeys(chosen.tables))
    interpreters = Interpreters(chosen.peer_python, chosen.threads)
    failed = False
    with tempfile.TemporaryDirectory(prefix="thunder-benchmarks-") as folder:
        caches = chosen.caches.resolve() if chosen.caches else Path(folder)
        for name in names:
            plan = plan_of(name, chosen, interpreters, caches)
            entries = run(name, plan, chosen)
            failed |= any(e.failed is not None and not e.failed.startswith("absent") for e in entries)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
