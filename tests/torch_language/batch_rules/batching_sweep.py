"""torch's samples of operators, mapped over a batch: `thunder.vmap` against `torch.vmap`.

    hatch run sweep batching               every entry of torch's database that torch.vmap maps
    hatch run sweep batching matmul conv   those whose names contain one of the words

Each tensor of a sample is batched alone, and all together. Where torch.vmap differs from its own loop over
the examples (it rolls a batch of scalars, for one), the loop is the judge.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import thunder
from torch_language.database_sweep import (
    Agreement,
    agreement,
    difference_from,
    entries_named,
    report,
    some_samples,
)

SIZE = 3
Leaves = list[Any]


def batched(x: torch.Tensor) -> torch.Tensor:
    """Return a batch of three examples like a tensor, which differ."""
    if x.dtype.is_floating_point or x.dtype.is_complex:
        return torch.stack([x, x * 0.9, x * 0.8]).detach()
    return torch.stack([x, x.flip(0) if x.dim() else x, x])


def entries(words: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """Return the entries of torch's database whose names contain a word, with their names."""
    return entries_named(words, lambda op: torch.float32 in op.dtypes)


def calls(op: Any, most: int) -> Iterator[tuple[Any, Leaves, Any, list[int]]]:
    """Yield a function of the leaves of a sample, the leaves, and the positions that are batched."""
    for sample in some_samples(op, torch.float32, most, requires_grad=False):
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
    return difference_from(results, (lambda: expected, lambda: by_loop(call, inputs, which)), atol=1e-4)


def by_loop(call: Any, inputs: Leaves, which: list[int]) -> tuple[torch.Tensor, ...]:
    """Return the stacked results of one call for each example."""
    rows = [call(*(x[n] if i in which else x for i, x in enumerate(inputs))) for n in range(SIZE)]
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


def check(op: Any, most: int) -> Agreement:
    """Return how many calls of an entry agree, of how many, and the first difference."""
    return agreement(outcome(call, leaves, which) for call, leaves, _, which in calls(op, most))


if __name__ == "__main__":
    raise SystemExit(report(entries(sys.argv[1:]), check, most=4, unjudged="not mapped by torch"))
