"""Runs every sample of torch's own operator database through the rows of the torch language, and prints a
table.

    python tools/operator_sweep.py [name …] [--samples N] [--dtypes float32,int64] [--missing] [--details]
    python tools/operator_sweep.py --record     all dtypes and samples, for the coverage table

A line per operator: samples that pass, samples that thunder refuses by name, samples that fail, and the first
failure.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import thunder.torch  # noqa: F401
from operators.recorded import update, verdict
from operators.samples import SKIPPED, check, means, name_of, samples
from thunder.base.errors import UnsupportedProgram
from thunder.base.pytree import tree_map

DTYPES = ("float32", "float64", "int64", "bool")
#: dtypes that the coverage table speaks of
RECORDED = (*DTYPES, "bfloat16", "complex64")


def record(op: Any) -> dict[str, Any]:
    """The facts of an entry for the coverage table."""
    forward, reason = {}, ""
    for dtype in RECORDED:
        counts, refusal, failure = sweep(op, [dtype], None)
        if counts:
            forward[dtype] = verdict(counts["passed"], counts["refused"], counts["failed"])
            reason = reason or failure or refusal
    return {"means": means(op), "forward": forward, "reason": reason}


def sweep(op: Any, dtypes: Iterable[str], limit: int | None) -> tuple[Counter[str], str, str]:
    """Counts of passed, refused and failed samples, with the first refusal and the first failure."""
    counts: Counter[str] = Counter()
    refusal = failure = ""
    for name in dtypes:
        for args, kwargs in samples(op, getattr(torch, name), limit):
            try:
                check(op, args, kwargs)
                counts["passed"] += 1
            except UnsupportedProgram as error:
                counts["refused"] += 1
                refusal = refusal or str(error).splitlines()[0]
            except Exception as error:  # a sweep reports every failure
                counts["failed"] += 1
                if not failure:
                    failure = (
                        f"{name} {short(args)} {short(kwargs)}: {type(error).__name__}: {str(error)[:300]}"
                    )
                    if DETAILS:
                        failure += "\n" + traceback.format_exc()
    return counts, refusal, failure


def short(tree: Any) -> str:
    """Arguments on one line, tensors by dtype and shape."""
    return str(tree_map(lambda x: f"{x.dtype}{list(x.shape)}" if isinstance(x, torch.Tensor) else x, tree))[
        :300
    ]


DETAILS = False


def record_all(names: list[str]) -> int:
    """Records the entries of these names, or all; returns 1 if a sample failed."""
    entries = {name_of(op): op for op in op_db if not op.name.startswith(SKIPPED)}
    found = {name: record(op) for name, op in entries.items() if not names or op.name in names}
    update(found, entries)
    failed = [name for name, facts in found.items() if "failed" in facts["forward"].values()]
    print(f"{len(found)} entries recorded, {len(failed)} failed: {', '.join(failed)}")
    return 1 if failed else 0


def main() -> int:
    """Prints the table; returns 1 if a sample failed."""
    global DETAILS
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*")
    parser.add_argument(
        "--samples", type=int, default=None, help="at most so many samples per operator and dtype"
    )
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--missing", action="store_true", help="show operators without a row too")
    parser.add_argument("--details", action="store_true", help="show the traceback of each first failure")
    parser.add_argument("--record", action="store_true", help="write what was found to the coverage file")
    options = parser.parse_args()
    DETAILS = options.details
    warnings.simplefilter("ignore")
    if options.record:
        return record_all(options.names)
    total: Counter[str] = Counter()
    for op in op_db:
        if op.name.startswith(SKIPPED) or (options.names and op.name not in options.names):
            continue
        counts, refusal, failure = sweep(op, options.dtypes.split(","), options.samples)
        state = "failed" if counts["failed"] else "complete" if not counts["refused"] else "partial"
        if counts["refused"] and not counts["passed"] and not counts["failed"]:
            state = "missing"
        total[state] += 1
        if state != "missing" or options.missing or options.names:
            print(f"{state:9}{name_of(op):45}{dict(counts)} {failure or refusal}", flush=True)
    print(dict(total))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
