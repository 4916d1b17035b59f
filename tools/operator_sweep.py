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

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import thunder.torch  # noqa: F401
from thunder.base.errors import UnsupportedProgram
from thunder.base.pytree import tree_map
from torch_language.coverage_records import Record, load, update, verdict
from torch_language.database import op_db
from torch_language.samples import SKIPPED, check, means, name_of, samples

DTYPES = ("float32", "float64", "int64", "bool")
#: dtypes that the coverage table speaks of
RECORDED = (*DTYPES, "bfloat16", "complex64")


def record(op: Any) -> dict[str, Any]:
    """Return the facts of an entry for the coverage table."""
    forward, reason, refused = {}, "", {}
    for dtype in RECORDED:
        counts, refusal, failure = sweep(op, dtype, None)
        refused[dtype] = counts["refused"]
        if counts:
            forward[dtype] = verdict(counts["passed"], counts["refused"], counts["failed"])
            reason = reason or failure or refusal
    return {"means": means(op), "forward": forward, "reason": reason, "refused": refused}


def sweep(op: Any, dtype: str, limit: int | None) -> tuple[Counter[str], str, str]:
    """Count passed, refused and failed samples; return that with the first refusal and the first failure."""
    counts: Counter[str] = Counter()
    refusal = failure = ""
    for args, kwargs in samples(op, getattr(torch, dtype), limit):
        try:
            check(op, args, kwargs)
            counts["passed"] += 1
        except UnsupportedProgram as error:
            counts["refused"] += 1
            refusal = refusal or str(error).splitlines()[0]
        except Exception as error:  # a sweep reports every failure
            counts["failed"] += 1
            if not failure:
                failure = f"{dtype} {short(args)} {short(kwargs)}: {type(error).__name__}: {str(error)[:300]}"
                if DETAILS:
                    failure += "\n" + traceback.format_exc()
    return counts, refusal, failure


def sweep_all(op: Any, dtypes: Iterable[str], limit: int | None) -> tuple[Counter[str], str]:
    """Count the samples of an entry in these dtypes; return that with the first failure, or refusal.

    Samples are also counted as ``changed`` where another number of them is refused than is recorded.
    """
    total: Counter[str] = Counter()
    refusal = failure = ""
    recorded = load().get(name_of(op), Record()).refused
    for dtype in dtypes:
        counts, first_refusal, first_failure = sweep(op, dtype, limit)
        refusal, failure = refusal or first_refusal, failure or first_failure
        total += counts
        difference = abs(counts["refused"] - recorded.get(dtype, 0))
        if limit is None and difference:
            total["changed"] += difference
            failure = failure or f"{dtype}: {recorded.get(dtype, 0)} refused samples are recorded: {refusal}"
    return total, failure or refusal


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
    """Print the table; return 1 if a sample failed, or another number of them is refused than is recorded."""
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
        counts, first = sweep_all(op, options.dtypes.split(","), options.samples)
        bad = next((state for state in ("failed", "changed") if counts[state]), None)
        refused = "partial" if counts["passed"] else "missing"
        state = bad or (refused if counts["refused"] else "complete")
        total[state] += 1
        if state != "missing" or options.missing or options.names:
            print(f"{state:9}{name_of(op):45}{dict(counts)} {first}", flush=True)
    print(dict(total))
    return 1 if total["failed"] + total["changed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
