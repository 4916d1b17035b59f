"""Compares the gradients of every sample of torch's own operator database with eager's, and prints a table.

    python tools/gradient_sweep.py [name …] [--samples N] [--dtypes float64,float32] [--primitives] [--bad]
                                   [--singular]

A line per operator: samples that pass, samples that eager or thunder refuses, samples that fail, and the
first failure. Names may end in ``*``. Second derivatives are compared in float64 and complex128.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections import Counter
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import thunder.torch  # noqa: F401
from thunder.base.errors import MissingGradient, UnsupportedProgram
from thunder.base.pytree import tree_map
from torch_language.coverage_records import load, update, verdict
from torch_language.database import op_db
from torch_language.gradients.differentiated_samples import (
    Sample,
    check_gradients,
    gradient_samples,
    has_second_order,
    is_judged,
)
from torch_language.gradients.singular import FATAL, OTHERWISE, singular_samples
from torch_language.samples import SKIPPED, name_of

DTYPES = ("float64", "float32", "complex128")
SECOND_ORDER = ("float64", "complex128")
#: states of an operator that fail the sweep
BAD = ("failed", "missing", "changed")


@dataclass
class Tally:
    """Counts of the samples of an operator, and the first thing that went wrong."""

    details: bool
    primitives: bool
    counts: Counter[str] = field(default_factory=Counter)
    first: str = ""
    second_order: int = 0

    def judge(self, sample: Sample, dtype: str, second: bool) -> None:
        """Counts one sample."""
        try:
            compared = check_gradients(sample, second, apart=self.primitives)
            self.counts["passed" if compared else "refused by eager"] += 1
            self.second_order += compared and second
        except MissingGradient as error:
            self._note("missing", sample, dtype, error)
        except UnsupportedProgram as error:
            self._note("refused", sample, dtype, error)
        except Exception as error:  # a sweep reports every failure
            self._note("failed", sample, dtype, error)

    def _note(self, verdict: str, sample: Sample, dtype: str, error: Exception) -> None:
        self.counts[verdict] += 1
        if self.counts[verdict] == 1 and not (self.first and verdict == "refused"):
            reason = f"{dtype} {short(sample.args)} {short(sample.kwargs)}: {type(error).__name__}: "
            self.first = reason + " ".join(str(error).split())[:300]
            if self.details:
                self.first += "\n" + traceback.format_exc()

    def compare_refused(self, recorded: int) -> None:
        """Count samples as ``changed`` if another number of them is refused than is recorded."""
        if self.counts["refused"] != recorded:
            self.counts["changed"] += abs(self.counts["refused"] - recorded)
            self.first = f"{recorded} refused samples are recorded: {self.first}"

    @property
    def state(self) -> str:
        """One of BAD, or ``partial`` (some samples are refused), ``complete`` or ``nothing``."""
        for bad in BAD:
            if self.counts[bad]:
                return bad
        if self.counts["refused"]:
            return "partial"
        return "complete" if self.counts["passed"] else "nothing"


def short(tree: Any) -> str:
    """Arguments on one line, tensors by dtype and shape."""
    return str(tree_map(lambda x: f"{x.dtype}{list(x.shape)}" if isinstance(x, torch.Tensor) else x, tree))[
        :300
    ]


def sweep(op: Any, options: argparse.Namespace) -> Tally:
    """Judges the samples of one entry."""
    tally = Tally(options.details, options.primitives)
    for dtype in options.dtypes.split(","):
        second = has_second_order(op) and dtype in SECOND_ORDER and not options.first_order
        samples = gradient_samples(op, getattr(torch, dtype), options.samples)
        for sample in singular_samples(samples) if options.singular else samples:
            tally.judge(sample, dtype, second)
    return tally


def facts_of(tally: Tally) -> dict[str, Any]:
    """What the coverage table says of an entry."""
    counts = tally.counts
    lacking, failed = counts["refused"], counts["failed"] + counts["missing"]
    return {
        "gradient": verdict(counts["passed"], lacking, failed),
        "second_order": verdict(tally.second_order, lacking, failed) if tally.second_order else "none",
        "refused": {"gradient": lacking},
    }


def main() -> int:
    """Print the table; return 1 if a sample failed, has no rule, or others are refused than are recorded."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="names of the database, with or without the variant")
    parser.add_argument("--samples", type=int, help="at most so many samples per operator and dtype")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--first-order", action="store_true", help="no second derivatives")
    parser.add_argument("--primitives", action="store_true", help="of operators taken apart")
    parser.add_argument("--singular", action="store_true", help="at zeros, ties, infinities, NaN …")
    parser.add_argument("--details", action="store_true", help="show the traceback of each first failure")
    parser.add_argument("--bad", action="store_true", help="show only what fails or has no rule")
    parser.add_argument("--record", action="store_true", help="write what was found to the coverage file")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    total: Counter[str] = Counter()
    found: dict[str, dict[str, Any]] = {}
    #: refused samples are recorded for all samples as they are
    is_whole = not (options.samples or options.singular or options.primitives or options.record)
    recorded = load() if is_whole and options.dtypes == ",".join(DTYPES) else {}
    for op in op_db:
        asked = any(fnmatch(n, p) for n in (op.name, name_of(op)) for p in options.names)
        left_out = options.singular and name_of(op) in OTHERWISE.keys() | FATAL
        if not is_judged(op) or left_out or (options.names and not asked):
            continue
        tally = sweep(op, options)
        if name_of(op) in recorded:
            tally.compare_refused(recorded[name_of(op)].refused.get("gradient", 0))
        total[tally.state] += 1
        found[name_of(op)] = facts_of(tally)
        if tally.state in BAD or not options.bad:
            print(f"{tally.state:9}{name_of(op):45}{dict(tally.counts)} {tally.first}", flush=True)
    if options.record:
        update(found, [name_of(op) for op in op_db if not op.name.startswith(SKIPPED)])
    print(dict(total))
    return 1 if any(total[bad] for bad in BAD) else 0


if __name__ == "__main__":
    raise SystemExit(main())
