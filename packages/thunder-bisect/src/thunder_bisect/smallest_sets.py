"""The smallest set of statements whose replacement by torch makes a program right."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, TypeVar

import torch

import thunder
from thunder.core.proxies import FutureTensorProxy
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace
from thunder_bisect.calls import copies_of, evaluate, is_wait, synchronous
from thunder_bisect.statement_checks import place_of
from thunder_transforms.observing import branch_of, is_computing

__all__ = ["Replacing", "smallest"]

T = TypeVar("T")


def smallest(items: Sequence[T], is_enough: Callable[[Sequence[T]], bool]) -> list[T] | None:
    """Return a part of `items` that is enough, none of whose items can be left out.

    None if all are not enough.

    The algorithm is ddmin (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002).
    """
    if not is_enough(items):
        return None
    rest, parts = list(items), 2
    while len(rest) > 1:
        size = -(-len(rest) // parts)
        chunks = [rest[i : i + size] for i in range(0, len(rest), size)]
        complements = [[x for other in chunks if other is not chunk for x in other] for chunk in chunks]
        found = next((c for c in (*chunks, *complements) if len(c) < len(rest) and is_enough(c)), None)
        if found is not None:
            parts = 2 if found in chunks else max(parts - 1, 2)
            rest = found
        elif parts >= len(rest):
            break
        else:
            parts = min(2 * parts, len(rest))
    return rest


class Replacing(thunder.Transform):
    """Lets torch compute some statements of the final traces, named by their places."""

    def __init__(self, places: Collection[Any]) -> None:
        self.places = frozenset(places)

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        branch = branch_of(computation_trace)
        new = from_trace(computation_trace)
        results = {b.args[0].name: b.output for b in computation_trace.bound_symbols if is_wait(b)}

        def is_replaced(bsym: BoundSymbol) -> bool:
            if isinstance(bsym.output, FutureTensorProxy):
                bsym = synchronous(bsym, results[bsym.output.name])
            return is_computing(bsym) and place_of(bsym, branch) in self.places

        new.bound_symbols = [_by_torch(b) if is_replaced(b) else b for b in computation_trace.bound_symbols]
        new.set_provenance(TraceProvenance(type(self).__name__))
        return new


def _by_torch(bsym: BoundSymbol) -> BoundSymbol:
    """Return a statement whose results torch computes from copies of the inputs."""
    arguments = list({p.name: p for p in bsym.flat_proxy_args}.values())
    outputs = bsym.flat_proxy_outs

    def run(*values: Any) -> list[Any]:
        known = copies_of(dict(zip([p.name for p in arguments], values, strict=True)))
        with torch.no_grad():
            evaluate(bsym, known)
        return [known[p.name] for p in outputs]

    symbol = Symbol(f"torch_{bsym.sym.name}", f"thunder_bisect.{bsym.sym.name}", python_impl=run)
    return symbol.bind(*arguments, output=list(outputs)).from_bsym(source=bsym.source)
