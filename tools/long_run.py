"""A soak: minutes of threads, recompiles, dropped models, processes and signals, with a report.

    hatch run soak                       ten minutes, each part a share
    hatch run soak --seconds 60          a minute
    hatch run soak --only interrupts     one part, for all of the time
    hatch run soak --report soak.json    the report as JSON too
    hatch run soak --list                the parts, with their first rounds

A part repeats its rounds with other seeds until its time is over, in a process of its own. It fails at the
first fault, with the seed that shows it. The small form of each part is in `hatch test` (tests/soak).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

#: what a round returns: counts, which are added up
Round = dict[str, Any]


def _threads() -> Iterator[Callable[[], Round]]:
    from soak.shared_function import shared_by_threads

    caches = ("constant values", None, "symbolic values")
    for seed in count():
        cache = caches[seed % 3]
        executors = ["torch"] if seed % 2 == 0 else None
        yield partial(shared_by_threads, 8, 1000, seed, executors=executors, cache=cache)


def _recompiles() -> Iterator[Callable[[], Round]]:
    from soak.recompiles import KINDS, recompiled

    for number in count():
        kind = list(KINDS)[number % len(KINDS)]
        yield partial(recompiled, kind, 1000)


def _models() -> Iterator[Callable[[], Round]]:
    from soak.dropped_models import dropped

    for number in count():
        if number % 2 == 0:
            yield partial(dropped, 24, {"executors": ["torch"]})
        else:
            # TorchInductor keeps the modules that it has generated: some 130 objects for each model
            yield partial(dropped, 24, {"executors": None}, objects=200)


def _processes() -> Iterator[Callable[[], Round]]:
    from soak.worker_processes import forked_while_compiling, loaded_by_workers

    for _ in count():
        yield partial(forked_while_compiling, 20)
        yield partial(loaded_by_workers, "fork", 2, 16)
        yield partial(loaded_by_workers, "spawn", 2, 8)


def _interrupts() -> Iterator[Callable[[], Round]]:
    from soak.interrupts import KINDS, by_timer, interrupted

    for seed in count():
        for kind in KINDS:
            yield partial(by_timer, kind, 10, seed)
            yield partial(interrupted, kind, 25, seed)
            yield partial(interrupted, kind, 25, seed, is_warm=True)


#: part → its rounds, and its share of the time
PARTS: Final[dict[str, tuple[Callable[[], Iterator[Callable[[], Round]]], float]]] = {
    "threads": (_threads, 0.2),
    "recompiles": (_recompiles, 0.35),
    "models": (_models, 0.15),
    "processes": (_processes, 0.1),
    "interrupts": (_interrupts, 0.2),
}


def run_part(name: str, seconds: float) -> dict[str, Any]:
    """Run rounds of a part until the time is over, one at least; return its row of the report."""
    started, rounds, counts = time.monotonic(), 0, Counter[str]()
    row: dict[str, Any] = {"part": name}
    try:
        for one_round in PARTS[name][0]():
            counts.update(one_round())
            rounds += 1
            if time.monotonic() - started > seconds:
                break
    except Exception:
        row["fault"] = f"round {rounds}: {traceback.format_exc()}"
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)
    took = round(time.monotonic() - started, 1)
    return row | {"rounds": rounds, "seconds": took, "peak MB": round(peak), **counts}


def in_process(name: str, seconds: float) -> dict[str, Any]:
    """Run a part in a process of its own; return its row, with a fault if the process dies."""
    environment = {"OMP_NUM_THREADS": "1", **os.environ}
    command = [sys.executable, "-W", "ignore", __file__, "--part", name, "--seconds", str(seconds)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    if done.returncode != 0 or not lines:
        return {"part": name, "fault": f"the process ended with {done.returncode}"}
    row: dict[str, Any] = json.loads(lines[-1])
    return row


def _printed(row: dict[str, Any]) -> str:
    facts = ", ".join(
        f"{value:,} {key}" for key, value in row.items() if key not in ("part", "fault", "seconds")
    )
    state = "FAILED" if "fault" in row else "ok"
    return f"{state:8}{row['part']:12}{row.get('seconds', 0):7.1f} s   {facts}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the parts, one after the other; return 1 if one has a fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=600, help="of all parts together")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--report", type=Path, help="a file for the report as JSON")
    parser.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="name the parts")
    options = parser.parse_args(arguments)
    if options.list:
        for name, (rounds, share) in PARTS.items():
            first = next(rounds())
            print(f"{name:12}{share:5.0%}   {getattr(first, 'func', first).__name__}")
        return 0
    if options.part:
        print(json.dumps(run_part(options.part, options.seconds)))
        return 0
    whole = sum(PARTS[name][1] for name in options.only)
    rows = []
    for name in options.only:
        rows.append(in_process(name, options.seconds * PARTS[name][1] / whole))
        print(_printed(rows[-1]), flush=True)
        if "fault" in rows[-1]:
            print(rows[-1]["fault"], flush=True)
    if options.report is not None:
        options.report.write_text(json.dumps(rows, indent=1), encoding="utf-8")
    failed = [row["part"] for row in rows if "fault" in row]
    print(f"failed: {', '.join(failed)}" if failed else "all parts passed")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
