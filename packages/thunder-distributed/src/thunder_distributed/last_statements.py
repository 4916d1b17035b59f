"""The last statements of a program that is divided: writes to inputs, views of them, the return.

torch runs them after the program's node in its graph, so that they are no part of the gradient. What they
read of divided values is therefore made whole before the first of them:

    y = gelu(h)                       y = gelu(h)                 a part of its columns
    copy_(t, mean)             →      w = joined(y, '1', 2)
    return y                          copy_(t, mean)
                                      return w
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from thunder.core import prims
from thunder.core.symbol import BoundSymbol, has_tags
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx

__all__ = ["final_grad_mode", "split_at_write"]


def split_at_write(trace: TraceCtx) -> tuple[list[BoundSymbol], list[BoundSymbol]]:
    """Return the statements before the first write, and the others; the return is one of the others."""
    bsyms = trace.bound_symbols
    writes = (i for i, bsym in enumerate(bsyms) if has_tags(bsym, {OpTags.IN_PLACE}))
    first = next(writes, len(bsyms) - 1)
    return list(bsyms[:first]), list(bsyms[first:])


@contextmanager
def final_grad_mode(mode: bool, last: Sequence[BoundSymbol]) -> Iterator[bool]:
    """Record and enter the grad mode in which a program ends; record and restore `mode` afterwards."""
    modes = [bsym for bsym in last if bsym.sym.id == prims.set_grad_enabled.id]
    final = bool(modes[-1].args[0]) if modes else mode
    if final != mode:
        prims.set_grad_enabled(final)
    before = torch.is_grad_enabled()
    try:
        torch.set_grad_enabled(final)
        yield final
    finally:
        torch.set_grad_enabled(before)
        if final != mode:
            prims.set_grad_enabled(mode)
