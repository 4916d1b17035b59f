"""How tests judge functionalisation: eager is run next to the functionalised trace, on equal inputs.

Compared are the results, the inputs after the call, and who shares memory with whom: after the call each result is written to in turn,
in both worlds, and everything must still be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from operators.evaluation import evaluated, traced
from thunder.core.operator import row_of
from thunder.core.passes.functionalise import functionalise
from thunder.core.pytree import tree_flatten
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx
from thunder.core.verify import check_trace


def copies(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Equal tensors with the same strides, in memory of their own."""
    return [_copy(t) for t in tensors]


def _copy(t: torch.Tensor) -> torch.Tensor:
    out = torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
    out.copy_(t)
    return out


def functional(fn: Callable[..., Any], *inputs: torch.Tensor) -> TraceCtx:
    """The functionalised trace of ``fn``, which is verified, and has no in-place operator but write-backs at its end."""
    trace = functionalise(traced(fn, *inputs))
    check_trace(trace, stage="functionalise")
    names = {p.name for p in trace.args}
    rest = [b for b in trace.bound_symbols if not (b.sym.id == "prims.copy_" and b.args[1].name in names)]
    assert not [b for b in rest if _in_place(b)], f"an in-place operator is left:\n{trace}"
    writes = [i for i, b in enumerate(trace.bound_symbols) if b.sym.id == "prims.copy_"]
    behind = trace.bound_symbols[writes[0] :] if writes else []
    for bsym in behind:
        assert bsym.sym.id in ("prims.copy_", "prims.python_return") or _is_view(bsym), f"behind a write:\n{trace}"
    return trace


def _in_place(bsym: BoundSymbol) -> bool:
    return OpTags.IN_PLACE in bsym.tags or any(map(_in_place, bsym.subsymbols))


def _is_view(bsym: BoundSymbol) -> bool:
    return not bsym.tags.isdisjoint({OpTags.VIEW, OpTags.MAYBE_VIEW}) and row_of(bsym.sym) is not None


def assert_as_eager(fn: Callable[..., Any], *inputs: torch.Tensor) -> TraceCtx:
    """Fails unless the functionalised trace does to results, inputs and memory what eager does; returns the trace."""
    theirs, ours = copies(inputs), copies(inputs)
    trace = functional(fn, *inputs)
    with torch.no_grad():
        expected, found = fn(*theirs), evaluated(trace, ours)
    want = [*tree_flatten(expected)[0], *theirs]
    have = [*tree_flatten(found)[0], *ours]
    assert len(want) == len(have)
    _assert_equal(want, have, "results and inputs", trace)
    for i, (w, h) in enumerate(zip(want, have, strict=True)):
        others = [next(j for j, o in enumerate(ts) if o is ts[i]) for ts in (want, have)]
        assert others[0] == others[1], f"result {i}: another object than in eager\n{trace}"
        if isinstance(w, torch.Tensor) and w.numel():
            with torch.no_grad():
                _poke(w, i)
                _poke(h, i)
            _assert_equal(want, have, f"after a write to result {i}", trace)
    return trace


def _poke(t: torch.Tensor, i: int) -> None:
    flat = t[(0,) * t.dim()]
    flat.fill_(bool(i % 2) if t.dtype is torch.bool else 17 + i)


def _assert_equal(want: Sequence[Any], have: Sequence[Any], what: str, trace: TraceCtx) -> None:
    for i, (w, h) in enumerate(zip(want, have, strict=True)):
        torch.testing.assert_close(
            h, w, rtol=0, atol=0, equal_nan=True, msg=lambda m, i=i: f"{what}, number {i}: {m}\n{trace}"
        )
