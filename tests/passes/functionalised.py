"""How tests judge functionalisation: eager is run next to the functionalised trace, on equal inputs.

Compared are the results, the inputs after the call, and who shares memory with whom: after the call each
result is written to in turn, in both worlds, and everything must still be equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from operators.trace_evaluator import evaluated, traced
from thunder.base.pytree import tree_flatten
from thunder.base.tags import OpTags
from thunder.ir.aliasing import InputAlias
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx
from thunder.ir.verify import check_trace
from thunder.passes.functionalise import functionalise

Program = Callable[..., Any]


def functional(fn: Program, *inputs: torch.Tensor) -> TraceCtx:
    """The functionalised trace of ``fn``, which is verified, and has no in-place operator but write-backs at
    its end.
    """
    recorded = traced(fn, *inputs)
    recorded.input_aliases = _aliases(recorded, inputs)
    trace = functionalise(recorded)
    check_trace(trace, stage="functionalise")
    names = {p.name for p in trace.args}
    writes = [i for i, b in enumerate(trace.bound_symbols) if b.sym.id == "prims.copy_"]
    assert all(trace.bound_symbols[i].args[1].name in names for i in writes), f"a write to no input:\n{trace}"
    rest = [b for i, b in enumerate(trace.bound_symbols) if i not in writes]
    assert not any(map(_in_place, rest)), f"an in-place operator is left:\n{trace}"
    for bsym in trace.bound_symbols[writes[-1] + 1 : -1] if writes else []:
        assert _is_view(bsym), f"behind the write-backs is more than views:\n{trace}"
    return trace


def _aliases(trace: TraceCtx, inputs: Sequence[torch.Tensor]) -> tuple[tuple[InputAlias, ...], ...]:
    """The inputs that share a storage, as the frontend says it."""
    groups: dict[int, list[InputAlias]] = {}
    for proxy, t in zip(trace.args, inputs, strict=True):
        alias = InputAlias(proxy, t.stride(), t.storage_offset())
        groups.setdefault(t.untyped_storage().data_ptr(), []).append(alias)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


def _in_place(bsym: BoundSymbol) -> bool:
    return OpTags.IN_PLACE in bsym.tags or any(map(_in_place, bsym.subsymbols))


def _is_view(bsym: BoundSymbol) -> bool:
    return not bsym.tags.isdisjoint({OpTags.VIEW, OpTags.MAYBE_VIEW})


def separate(*tensors: torch.Tensor) -> Callable[[], list[torch.Tensor]]:
    """Makes equal tensors with the same strides, each in memory of its own."""

    def make() -> list[torch.Tensor]:
        made = [torch.empty_strided(t.shape, t.stride(), dtype=t.dtype) for t in tensors]
        return [out.copy_(t) for out, t in zip(made, tensors, strict=True)]

    return make


def assert_as_eager(fn: Program, *inputs: torch.Tensor) -> TraceCtx:
    """:func:`assert_same_effects` on copies of these inputs."""
    return assert_same_effects(fn, separate(*inputs))


def assert_same_effects(fn: Program, make: Callable[[], list[torch.Tensor]]) -> TraceCtx:
    """Fails unless the functionalised trace does to results, inputs and memory what eager does; returns the
    trace.
    """
    theirs, ours = make(), make()
    trace = functional(fn, *ours)
    with torch.no_grad():
        expected, found = fn(*theirs), evaluated(trace, ours)
    want, have = [*tree_flatten(expected)[0], *theirs], [*tree_flatten(found)[0], *ours]
    assert len(want) == len(have)
    _assert_equal(want, have, "results and inputs", trace)
    for i, (w, h) in enumerate(zip(want, have, strict=True)):
        same = next(j for j, other in enumerate(want) if other is w)
        assert have[same] is h, f"results {same} and {i} are one object in eager, and two here\n{trace}"
        if isinstance(w, torch.Tensor) and w.numel():
            _poke(w, i)
            _poke(h, i)
            _assert_equal(want, have, f"after a write to result {i}", trace)
    return trace


def _poke(t: torch.Tensor, i: int) -> None:
    t[(0,) * t.dim()].fill_(bool(i % 2) if t.dtype is torch.bool else 17 + i)


def _assert_equal(want: Sequence[Any], have: Sequence[Any], what: str, trace: TraceCtx) -> None:
    for i, (w, h) in enumerate(zip(want, have, strict=True)):
        torch.testing.assert_close(
            h, w, rtol=0, atol=0, equal_nan=True, msg=lambda m, i=i: f"{what}, number {i}: {m}\n{trace}"
        )
