"""The decomposition of a composite call that a transform constructed without one."""

from __future__ import annotations

import torch

from thunder.base.errors import TraceError
from thunder.base.langctx import TORCH, using_language
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.substitution import rename_results
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, tracectx

__all__ = ["with_decomposition"]


def with_decomposition(bsym: BoundSymbol, trace: TraceCtx) -> BoundSymbol:
    """Return a composite call with its subsymbols; if it has none, they are recorded again.

        t1 = op(x)   →   t1 = op(x)
                           # t0 = ltorch.sigmoid(x)
                           # t1 = ltorch.mul(x, t0)

    New values get names of `trace`. A primitive, and a call whose decomposition records nothing, are returned
    unchanged. Raises TraceError if the outputs of the call are not what its decomposition returns.
    """
    symbol = bsym.sym
    if bsym.subsymbols or symbol.is_prim or symbol.meta is None:
        return bsym
    recorded: list[BoundSymbol] = []
    with (
        tracectx(trace),
        using_language(TORCH),
        torch.enable_grad(),
        trace.recording_into(recorded),
        trace.naming_after(bsym.flat_proxy_outs, "d"),
    ):
        result = symbol.meta(*bsym.args, **bsym.kwargs)
    if not recorded:
        return bsym
    outputs, results = proxies_in(bsym.output), proxies_in(result)
    types = [[p.type_string() for p in proxies] for proxies in (outputs, results)]
    if types[0] != types[1]:
        raise TraceError(
            f"a call of {symbol.id} was constructed with other outputs than the operator returns",
            found={"call": ", ".join(types[0]), "operator": ", ".join(types[1])},
            where=bsym.locations,
        )
    subsymbols = rename_results(recorded, bsym, zip(outputs, results, strict=True), {})
    return bsym.from_bsym(subsymbols=subsymbols)
