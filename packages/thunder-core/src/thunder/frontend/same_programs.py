"""Whether two acquisitions have the same program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thunder.base.cache_queries import CacheQuery
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import TraceCtx

if TYPE_CHECKING:
    from thunder.frontend.acquire import Acquisition

__all__ = ["are_same", "have_same_computation"]


def are_same(a: Acquisition, b: Acquisition) -> bool:
    """Return whether two acquisitions for one call have equal programs of the same objects."""
    traces = [[t for t in (p.computation, p.epilogue) if t is not None] for p in (a, b)]
    return (
        _have_same_texts(*traces)
        and [(p.name, path.place) for p, path in a.inputs] == [(p.name, path.place) for p, path in b.inputs]
        and _have_same_decisions(a, b)
    )


def have_same_computation(a: Acquisition, b: Acquisition) -> bool:
    """Return whether two acquisitions have one computation, of inputs with the same metadata.

    False where a number or a size is an input: what is known of these is no part of the computation.
    """
    x, y = a.computation, b.computation
    return (
        a.sizes is None
        and b.sizes is None
        and (x.grad_enabled, x.tags, x.input_aliases) == (y.grad_enabled, y.tags, y.input_aliases)
        and a.grad_requests == b.grad_requests
        and _have_same_decisions(a, b)
        and _have_same_metadata(x, y)
        and _have_same_texts([x], [y])
    )


def _have_same_decisions(a: Acquisition, b: Acquisition) -> bool:
    decisions = [[(d.question_text, d.answer) for d in p.decisions] for p in (a, b)]
    return decisions[0] == decisions[1]


def _have_same_texts(a: Sequence[TraceCtx], b: Sequence[TraceCtx]) -> bool:
    """Return whether traces have equal texts, in which equal names are the same objects."""
    texts = [[t.program(include_timing=False) for t in traces] for traces in (a, b)]
    return [t.text for t in texts[0]] == [t.text for t in texts[1]] and all(
        _have_same_objects(x.context, y.context) for x, y in zip(*texts, strict=True)
    )


def _have_same_objects(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    return a.keys() == b.keys() and all(_is_same(value, b[name]) for name, value in a.items())


def _is_same(a: Any, b: Any) -> bool:
    return a is b or (type(a) is type(b) is CacheQuery and a.use == b.use)


def _have_same_metadata(a: TraceCtx, b: TraceCtx) -> bool:
    """Return whether all inputs are tensors, and all tensors of two traces have the same metadata."""
    proxies = [[*t.args, *(p for bsym in t.bound_symbols for p in bsym.flat_proxy_outs)] for t in (a, b)]
    return (
        all(isinstance(p, TensorProxy) for t in (a, b) for p in t.args)
        and len(proxies[0]) == len(proxies[1])
        and all(_metadata(p) == _metadata(q) for p, q in zip(*proxies, strict=True))
    )


def _metadata(proxy: Any) -> list[Any]:
    names = TensorProxy.__slots__ if isinstance(proxy, TensorProxy) else ("name",)
    return [type(proxy), *(getattr(proxy, name, None) for name in names)]
