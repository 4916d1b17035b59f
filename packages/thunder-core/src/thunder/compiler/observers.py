"""The check of transforms that observe: the program that they return computes what it did before."""

from __future__ import annotations

from thunder.base.errors import PluginError
from thunder.base.extension_origin import origin_of
from thunder.base.structural_ids import COMMENT, RELEASES, RETURN
from thunder.base.tags import OpTags
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ir.trace import TraceCtx

__all__ = ["check_only_observed"]


def check_only_observed(before: TraceCtx, after: TraceCtx, transform: type) -> None:
    """Raise PluginError unless `after` has the calls of `before`, in order, and others without results."""
    if before is after:
        return
    waiting = _calls(before)[::-1]
    for bsym in _calls(after):
        if waiting and _is_same(bsym, waiting[-1]):
            waiting.pop()
        elif bsym.flat_proxy_outs or bsym.sym.id == RETURN or has_tags(bsym, {OpTags.IN_PLACE}):
            if waiting and any(_is_same(bsym, later) for later in waiting):
                raise _changed(transform, "drops or moves", waiting[-1])
            raise _changed(transform, "adds or changes", bsym)
    if waiting:
        raise _changed(transform, "drops or moves", waiting[-1])


def _calls(trace: TraceCtx) -> list[BoundSymbol]:
    return [b for b in trace.bound_symbols if b.sym.id not in RELEASES and b.sym.id != COMMENT]


def _is_same(a: BoundSymbol, b: BoundSymbol) -> bool:
    """Return whether two calls have the same symbol, arguments and names of outputs."""
    return a.flat_variableified_proxy_outs == b.flat_variableified_proxy_outs and a.rhs == b.rhs


def _changed(transform: type, change: str, bsym: BoundSymbol) -> PluginError:
    return PluginError(
        f"{transform.__name__} has observes = True, and {change} a call that the program depends on",
        found={"call": bsym.line},
        where=bsym.locations,
        hint="A transform that observes adds calls without results. Any other does not set observes.",
    ).blame(origin_of(transform))
