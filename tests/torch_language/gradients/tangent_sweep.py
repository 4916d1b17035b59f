"""torch's samples of operators, differentiated forward: `thunder.jvp` against `torch.func.jvp`.

    hatch run sweep tangents             every entry of torch's database with forward derivatives
    hatch run sweep tangents norm        those whose names contain one of the words

Where the two differ, central differences of eager are the judge.
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

Tensors = tuple[torch.Tensor, ...]


def entries(words: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """Return the entries that torch differentiates forward, with their names, which contain a word."""
    return entries_named(words, lambda op: op.supports_forward_ad and torch.float64 in op.dtypes)


def calls(op: Any, most: int) -> Iterator[tuple[Any, Tensors]]:
    """Yield functions of the floating-point tensors of samples, and these."""
    for sample in some_samples(op, torch.float64, most, requires_grad=True):
        leaves, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        at = [i for i, x in enumerate(leaves) if isinstance(x, torch.Tensor) and x.requires_grad]
        if not at or any(leaves[i].layout is not torch.strided for i in at):
            continue
        constants = [x.detach() if isinstance(x, torch.Tensor) else x for x in leaves]

        def call(*tensors: torch.Tensor, at: Any = at, constants: Any = constants, spec: Any = spec) -> Any:
            values = list(constants)
            for position, tensor in zip(at, tensors, strict=True):
                values[position] = tensor
            args, kwargs = tree_unflatten(values, spec)
            results = tree_leaves(op.op(*args, **kwargs))
            return tuple(x for x in results if isinstance(x, torch.Tensor))

        yield call, tuple(constants[i] for i in at)


def outcome(call: Any, primals: Tensors) -> str | None:
    """Return why tangents differ from torch's, "" if they do not, None where torch has none."""
    torch.manual_seed(0)
    tangents = tuple(torch.randn_like(p) for p in primals)
    try:
        expected = torch.func.jvp(call, primals, tangents)[1]
    except Exception:
        return None
    try:
        results = thunder.jvp(call)(primals, tangents)[1]
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    judges = (lambda: expected, lambda: differences(call, primals, tangents))
    return difference_from(results, judges, atol=1e-5)


def differences(call: Any, primals: Tensors, tangents: Tensors, step: float = 1e-6) -> Tensors:
    """Return central differences of a function along tangents."""
    ahead = call(*(p + step * t for p, t in zip(primals, tangents, strict=True)))
    behind = call(*(p - step * t for p, t in zip(primals, tangents, strict=True)))
    return tuple(
        (a - b) / (2 * step) if a.is_floating_point() or a.is_complex() else torch.zeros_like(a)
        for a, b in zip(ahead, behind, strict=True)
    )


def check(op: Any, most: int) -> Agreement:
    """Return how many calls of an entry agree, of how many, and the first difference."""
    return agreement(outcome(call, primals) for call, primals in calls(op, most))


if __name__ == "__main__":
    raise SystemExit(report(entries(sys.argv[1:]), check, most=2, unjudged="without tangents in torch"))
