"""torch's samples of operators, differentiated forward: `thunder.jvp` against `torch.func.jvp`.

    hatch run sweep tangents             every entry of torch's database with forward derivatives
    hatch run sweep tangents norm        those whose names contain one of the words

Where the two differ, central differences of eager are the judge.
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

Tensors = tuple[torch.Tensor, ...]


def entries(words: Sequence[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the entries that torch differentiates forward, with their names, which contain a word."""
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        is_smooth = op.supports_forward_ad and torch.float64 in op.dtypes
        if is_smooth and (not words or any(word in name for word in words)):
            yield name, op


def calls(op: Any, most: int) -> Iterator[tuple[Any, Tensors]]:
    """Yield functions of the floating-point tensors of samples, and these."""
    samples = list(op.sample_inputs("cpu", torch.float64, requires_grad=True))
    for sample in samples[:: max(1, len(samples) // most)]:
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
    for judge in (lambda: expected, lambda: differences(call, primals, tangents)):
        try:
            torch.testing.assert_close(results, judge(), equal_nan=True, rtol=1e-4, atol=1e-5)
            return ""
        except (AssertionError, RuntimeError, ValueError) as error:
            difference = str(error)
    return difference


def differences(call: Any, primals: Tensors, tangents: Tensors, step: float = 1e-6) -> Tensors:
    """Return central differences of a function along tangents."""
    ahead = call(*(p + step * t for p, t in zip(primals, tangents, strict=True)))
    behind = call(*(p - step * t for p, t in zip(primals, tangents, strict=True)))
    return tuple(
        (a - b) / (2 * step) if a.is_floating_point() or a.is_complex() else torch.zeros_like(a)
        for a, b in zip(ahead, behind, strict=True)
    )


def check(op: Any, most: int) -> tuple[int, int, str]:
    """Return how many calls of an entry agree, of how many, and the first difference."""
    agree, judged, first = 0, 0, ""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for call, primals in calls(op, most):
            difference = outcome(call, primals)
            judged += difference is not None
            agree += difference == ""
            first = first or difference or ""
    return agree, judged, first


def main(words: Sequence[str]) -> int:
    """Print the entries that differ, and the counts; return 0 if nine of ten agree."""
    counts = collections.Counter[str]()
    for name, op in entries(words):
        agree, judged, difference = check(op, most=2)
        kind = "without tangents in torch" if not judged else "as torch" if agree == judged else "different"
        counts[kind] += 1
        if kind == "different":
            print(f"{name}: {agree} of {judged}: {difference[:200]!r}", flush=True)
    print(", ".join(f"{count} {kind}" for kind, count in counts.items()))
    return 0 if counts["as torch"] >= 9 * counts["different"] else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    raise SystemExit(main(sys.argv[1:]))
