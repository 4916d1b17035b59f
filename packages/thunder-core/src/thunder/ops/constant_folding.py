"""Constant folding while a program is traced: values that depend on no input.

    position = torch.arange(0, n)          →   n is a number, and guarded
    if position[0] > 0: …                  →   the condition is the same in each call of this program

The few operators between constants and the condition run once, on the CPU, when the program reads the value.
Only integers and booleans are folded: they are the same on every device, and floating-point numbers are not.

Some operators draw numbers of a known interval: `torch.rand` of [0, 1). A comparison of them with a number
outside of it is folded too, as in the layer dropout of a model that drops no layer: `if
torch.rand([]) < 0.0`. The numbers are drawn all the same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import torch

from thunder.base.devices import Device
from thunder.base.pytree import tree_map
from thunder.base.tags import OpTags
from thunder.ir.effects import KEPT
from thunder.ir.proxies import Proxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx
from thunder.ops.operator import row_of

#: elements of the largest tensor that is computed while tracing
_LARGEST: Final = 1 << 16
#: first parts of the ids of operators that only compute; those of plugins may do more
_PREFIXES: Final = ("torch.", "ltorch.")
#: tags of operators whose results are not determined by their arguments
_UNDETERMINED: Final = KEPT | {OpTags.FALLBACK, OpTags.UNINITIALIZED}

#: operator → the half-open interval [low, high) of its results
_INTERVALS: Final[dict[str, tuple[float, float]]] = {"torch.rand": (0.0, 1.0)}
#: comparison with a number → its result for all numbers of [low, high), or None where they differ
_COMPARISONS: Final[dict[str, Callable[[float, float, float], bool | None]]] = {
    "torch.lt": lambda low, high, bound: False if bound <= low else True if bound >= high else None,
    "torch.le": lambda low, high, bound: False if bound < low else True if bound >= high else None,
    "torch.gt": lambda low, high, bound: True if bound < low else False if bound >= high else None,
    "torch.ge": lambda low, high, bound: True if bound <= low else False if bound >= high else None,
}


def constant_value(trace: TraceCtx, x: TensorProxy) -> torch.Tensor | None:
    """Return the value of ``x`` in the program so far, on the CPU, or None if not known."""
    recorded = [bsym for scope in trace.scopes for bsym in scope]
    producers = {id(out): bsym for bsym in recorded for out in bsym.flat_proxy_outs}
    needed = _constant_subprogram(x, producers)
    if needed is None:
        return _compared_with_bound(x, producers, recorded)
    if any(_writes_to(recorded, needed)):
        return None
    values: dict[int, Any] = {}
    for bsym in recorded:
        if any(bsym is n for n in needed):
            _run(bsym, values)
    value: torch.Tensor = values[id(x)]
    return value


def _constant_subprogram(x: TensorProxy, producers: dict[int, BoundSymbol]) -> list[BoundSymbol] | None:
    """Return the calls that compute ``x`` from constants alone, or None."""
    needed: list[BoundSymbol] = []
    waiting: list[Any] = [x]
    while waiting:
        bsym = producers.get(id(waiting.pop()))
        if bsym is None or not _is_determined(bsym):
            return None
        if not any(bsym is n for n in needed):
            needed.append(bsym)
            waiting += bsym.flat_proxy_args
    return needed


def _is_determined(bsym: BoundSymbol) -> bool:
    """Return whether a call computes small exact results from its arguments alone."""
    row = row_of(bsym.sym)
    return (
        row is not None
        and row.eager is not None
        and row.id.startswith(_PREFIXES)
        and all(_is_exact(p) for p in (*bsym.flat_proxy_outs, *bsym.flat_proxy_args))
        and not has_tags(bsym, _UNDETERMINED)
    )


def _is_exact(p: Any) -> bool:
    return isinstance(p, TensorProxy) and not p.dtype.is_inexact and math.prod(p.shape) <= _LARGEST


def _writes_to(recorded: Iterable[BoundSymbol], needed: list[BoundSymbol]) -> Iterator[bool]:
    """Yield, for each call that reads a value from ``needed``, whether it writes in place."""
    reached = {id(out) for bsym in needed for out in bsym.flat_proxy_outs}
    for bsym in recorded:
        if any(id(p) in reached for p in bsym.flat_proxy_args):
            reached.update(id(out) for out in bsym.flat_proxy_outs)
            yield has_tags(bsym, {OpTags.IN_PLACE})


def _run(bsym: BoundSymbol, values: dict[int, Any]) -> None:
    """Compute a call on the CPU; ``values`` are results by the ids of their proxies."""

    def on_cpu(value: Any) -> Any:
        if isinstance(value, Proxy | TensorProxy):
            return values[id(value)]
        return torch.device("cpu") if isinstance(value, torch.device | Device) else value

    eager = getattr(row_of(bsym.sym), "eager", None)
    assert eager is not None, "a determined call has an eager function"
    args, kwargs = tree_map(on_cpu, (bsym.args, bsym.kwargs))
    if kwargs.get("device") is not None:
        kwargs["device"] = torch.device("cpu")
    result = eager(*args, **kwargs)
    outs = bsym.output if isinstance(bsym.output, tuple | list) else (bsym.output,)
    results = result if isinstance(result, tuple | list) else (result,)
    values.update({id(out): value for out, value in zip(outs, results, strict=True)})


def _compared_with_bound(
    x: TensorProxy, producers: dict[int, BoundSymbol], recorded: Iterable[BoundSymbol]
) -> torch.Tensor | None:
    """Return the comparison of an interval with a number, or None where it is not uniform."""
    comparison = producers.get(id(x))
    rule = _COMPARISONS.get(comparison.sym.id) if comparison is not None else None
    if comparison is None or rule is None or len(comparison.args) < 2:
        return None
    numbers, bound = comparison.args[:2]
    producer = producers.get(id(numbers))
    interval = _INTERVALS.get(producer.sym.id) if producer is not None else None
    if producer is None or interval is None or type(bound) not in (int, float):
        return None
    if any(_writes_to(recorded, [producer])):
        return None
    result = rule(*interval, bound)
    return None if result is None else torch.full(x.shape, result)
