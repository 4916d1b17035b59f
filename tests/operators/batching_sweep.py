"""torch's samples of operators, mapped over a batch: `thunder.vmap` against `torch.vmap`.

    hatch run sweep batching               every entry of torch's database that torch.vmap maps
    hatch run sweep batching matmul conv   those whose names contain one of the words

Each tensor of a sample is batched alone, and all together. Where torch.vmap differs from its own loop over
the examples (it rolls a batch of scalars, for one), the loop is the judge.
"""

from __future__ import annotations

import collections
import sys
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import thunder

SIZE = 3
Leaves = list[Any]


def batched(x: torch.Tensor) -> torch.Tensor:
    """Return a batch of three examples like a tensor, which differ."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return torch.stack([x, x * 0.9, x * 0.8]).detach()
    return torch.stack([x, x.flip(0) if x.dim() else x, x])


def entries(words: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the entries of torch's database whose names contain a word, with their names."""
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        if torch.float32 in op.dtypes and (not words or any(word in name for word in words)):
            yield name, op


def calls(op: Any, most: int) -> Iterator[tuple[Any, Leaves, Any, list[int]]]:
    """Yield a function of the leaves of a sample, the leaves, and the positions that are batched."""
    samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=False))
    for sample in samples[:: max(1, len(samples) // most)]:
        leaves, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor)]
        if any(leaves[i].layout is not torch.strided or leaves[i].dtype.itemsize < 1 for i in tensors):
            continue

        def call(*args: Any, spec: Any = spec) -> tuple[torch.Tensor, ...]:
            positional, keywords = tree_unflatten(list(args), spec)
            return tuple(
                x for x in tree_leaves(op.op(*positional, **keywords)) if isinstance(x, torch.Tensor)
            )

        for which in [tensors, *([[i] for i in tensors[:3]] if len(tensors) > 1 else [])]:
            if which:
                yield call, leaves, spec, which


def outcome(call: Any, leaves: Leaves, which: list[int]) -> str | None:
    """Return why a mapped call differs from torch's, "" if it does not, None where torch maps it not."""
    inputs = [batched(x) if i in which else x for i, x in enumerate(leaves)]
    dims = tuple(0 if i in which else None for i in range(len(leaves)))
    try:
        expected = torch.vmap(call, dims)(*inputs)
    except Exception:
        return None
    if not expected:
        return None
    try:
        results = thunder.vmap(call, dims)(*inputs)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for judge in (lambda: expected, lambda: by_loop(call, inputs, which)):
        try:
            torch.testing.assert_close(results, judge(), equal_nan=True, rtol=1e-4, atol=1e-4)
            return ""
        except (AssertionError, RuntimeError) as error:
            difference = str(error)
    return difference


def by_loop(call: Any, inputs: Leaves, which: list[int]) -> tuple[torch.Tensor, ...]:
    """Return the stacked results of one call for each example."""
    rows = [call(*(x[n] if i in which else x for i, x in enumerate(inputs))) for n in range(SIZE)]
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def check(op: Any, most: int) -> tuple[int, int, str]:
    """Return how many calls of an entry agree, of how many, and the first difference."""
    agree, judged, first = 0, 0, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, leaves, _, which in calls(op, most):
            difference = outcome(call, leaves, which)
            judged += difference is not None
            agree += difference == ""
            first = first or difference or ""
    return agree, judged, first


def main(words: Sequence[str]) -> int:
    """Print the entries that differ, and the counts; return 0 if nine of ten agree."""
    counts = collections.Counter[str]()
    for name, op in entries(words):
        agree, judged, difference = check(op, most=4)
        kind = "not mapped by torch" if not judged else "as torch" if agree == judged else "different"
        counts[kind] += 1
        if kind == "different":
            print(f"{name}: {agree} of {judged}: {difference[:200]!r}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 0 if counts["as torch"] >= 9 * counts["different"] else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(main(sys.argv[1:]))
