"""A region in torch's kernels: its calls one after the other, with eager's numbers and eager's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch

from thunder.core.symbol import BoundSymbol
from thunder.extend import Region, evaluate_calls

__all__ = ["torch_function_of"]


def torch_function_of(region: Region) -> Callable[[list[torch.Tensor]], list[torch.Tensor]]:
    """Return a function from the inputs of a region, in a list that it empties, to the outputs.

    A value is kept until its last use, as it is in eager.
    """
    names = [p.name for p in region.inputs]
    outputs = [p.name for p in region.outputs]
    calls = _with_last_uses(region)

    def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        values = dict(zip(names, tensors, strict=True))
        tensors.clear()

        def each() -> Iterator[BoundSymbol]:
            for call, last_used in calls:
                yield call
                for name in last_used:
                    values.pop(name, None)

        evaluate_calls(each(), values)
        return [values[name] for name in outputs]

    return run


def _with_last_uses(region: Region) -> list[tuple[BoundSymbol, tuple[str, ...]]]:
    """Return each call with the names of the values that nothing reads after it."""
    seen = {p.name for p in region.outputs}
    found: list[tuple[BoundSymbol, tuple[str, ...]]] = []
    for call in reversed(region.bsyms):
        names = dict.fromkeys(p.name for p in (*call.flat_proxy_args, *call.flat_proxy_outs))
        found.append((call, tuple(name for name in names if name not in seen)))
        seen.update(names)
    return found[::-1]
