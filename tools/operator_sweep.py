"""Runs every sample of torch's own operator database through the rows of the torch language, and prints a table.

    python tools/operator_sweep.py [name …] [--samples N] [--dtypes float32,int64] [--missing] [--details]

A line per operator: samples that pass, samples that thunder refuses by name, samples that fail, and the first failure.
"""

from __future__ import annotations

import argparse
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import thunder.torch  # noqa: E402, F401
from operators.evaluate import record, run, same_metadata, same_values  # noqa: E402
from thunder.core.errors import UnsupportedProgram  # noqa: E402
from thunder.core.pytree import tree_map  # noqa: E402

DTYPES = ("float32", "float64", "int64", "bool")


def clone(tree: Any) -> Any:
    """A copy in which tensors keep their strides and one object stays one object."""
    seen: dict[int, torch.Tensor] = {}

    def copy(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        return seen.setdefault(id(x), x.detach().clone(memory_format=torch.preserve_format))

    return tree_map(copy, tree)


def check(op: Any, args: Any, kwargs: Any) -> None:
    """Asserts that a call gives what eager gives: metadata, values of the rows, values of the primitives."""
    torch.manual_seed(SEED)
    expected = op.op(*clone(args), **clone(kwargs))
    for primitives in (False, True):
        fresh, options = clone(args), clone(kwargs)
        trace, values, output = record(op.op, fresh, options)
        same_metadata(output, expected)
        torch.manual_seed(SEED)
        result = run(trace, values, output, primitives=primitives)
        if op.name not in UNINITIALISED and not (primitives and op.name in RANDOM):
            same_values(result, expected, exact=not primitives)


def sweep(op: Any, dtypes: Iterable[str], limit: int | None) -> tuple[Counter[str], str, str]:
    """Counts of passed, refused and failed samples, with the first refusal and the first failure."""
    counts: Counter[str] = Counter()
    refusal = failure = ""
    for name in dtypes:
        dtype = getattr(torch, name)
        if not op.supports_dtype(dtype, "cpu"):
            continue
        for sample in islice(op.sample_inputs("cpu", dtype, requires_grad=False), limit):
            args, kwargs = (sample.input, *sample.args), sample.kwargs
            try:
                op.op(*clone(args), **clone(kwargs))
            except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
                counts["eager refuses"] += 1
                continue
            try:
                check(op, args, kwargs)
                counts["passed"] += 1
            except UnsupportedProgram as error:
                counts["refused"] += 1
                refusal = refusal or str(error).splitlines()[0]
            except Exception as error:  # a sweep reports every failure
                counts["failed"] += 1
                if not failure:
                    failure = f"{name} {short(args)} {short(kwargs)}: {type(error).__name__}: {str(error)[:300]}"
                    if DETAILS:
                        failure += "\n" + traceback.format_exc()
    return counts, refusal, failure


def short(tree: Any) -> str:
    """Arguments on one line, tensors by dtype and shape."""
    return str(tree_map(lambda x: f"{x.dtype}{list(x.shape)}" if isinstance(x, torch.Tensor) else x, tree))[:300]


RANDOM = {"bernoulli", "multinomial", "normal", "rand_like", "randn_like", "randn", "randint", "randint_like", "uniform"}
#: whose values nobody promises
RANDOM |= {"nn.functional.dropout", "nn.functional.dropout2d"}
RANDOM |= {"nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout_with_train"}
#: for GPUs only; and written in Python that hands a proxy's dtype to torch without being interpreted
SKIPPED = ("jiterator", "signal.", "masked.")
UNINITIALISED = {"empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "empty_permuted"}
#: what the samples' own functions seed torch with
SEED = 42
DETAILS = False


def main() -> int:
    """Prints the table; returns 1 if a sample failed."""
    global DETAILS
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=None, help="at most so many samples per operator and dtype")
    parser.add_argument("--dtypes", default=",".join(DTYPES))
    parser.add_argument("--missing", action="store_true", help="show operators without a row too")
    parser.add_argument("--details", action="store_true", help="show the traceback of each first failure")
    options = parser.parse_args()
    DETAILS = options.details
    warnings.simplefilter("ignore")
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
            name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
            print(f"{state:9}{name:45}{dict(counts)} {failure or refusal}", flush=True)
    print(dict(total))
    return 1 if total["failed"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
