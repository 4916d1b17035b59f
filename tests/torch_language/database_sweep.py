"""What the sweeps of transforms over torch's operator database share: entries, samples, judges, counts."""

from __future__ import annotations

import collections
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import torch

from torch_language.database import op_db

#: how many calls of an entry agree, of how many, and the first difference
Agreement = tuple[int, int, str]


def entries_named(words: Sequence[str], accepts: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """Yield the accepted entries of torch's database whose names contain a word, with their names."""
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if accepts(op) and (not words or any(word in name for word in words)):
            yield name, op


def some_samples(op: Any, dtype: torch.dtype, most: int, *, requires_grad: bool) -> list[Any]:
    """Return samples of an entry that are spread over all that it has."""
    samples = list(op.sample_inputs("cpu", dtype, requires_grad=requires_grad))
    return samples[:: max(1, len(samples) // most)]


def difference_from(results: Any, judges: Iterable[Callable[[], Any]], *, atol: float) -> str:
    """Return "" if the results are those of a judge, else how they differ from the last one's."""
    difference = ""
    for judge in judges:
        try:
            torch.testing.assert_close(results, judge(), equal_nan=True, rtol=1e-4, atol=atol)
            return ""
        except (AssertionError, RuntimeError, ValueError) as error:
            difference = str(error)
    return difference


def agreement(outcomes: Iterable[str | None]) -> Agreement:
    """Count outcomes: a difference, "" for none, None for a call that torch does not judge."""
    agree, judged, first = 0, 0, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for difference in outcomes:
            judged += difference is not None
            agree += difference == ""
            first = first or difference or ""
    return agree, judged, first


def report(
    entries: Iterable[tuple[str, Any]], check: Callable[[Any, int], Agreement], *, most: int, unjudged: str
) -> int:
    """Print the entries that differ, and the counts; return 0 if nine of ten agree."""
    torch.set_num_threads(1)
    counts = collections.Counter[str]()
    for name, op in entries:
        agree, judged, difference = check(op, most)
        kind = unjudged if not judged else "as torch" if agree == judged else "different"
        counts[kind] += 1
        if kind == "different":
            print(f"{name}: {agree} of {judged}: {difference[:200]!r}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 0 if counts["as torch"] >= 9 * counts["different"] else 1
