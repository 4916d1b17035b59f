"""The parts of what a gradient rule records: the forward, and the step of the backward."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from thunder.ir.effects import has_effect
from thunder.ir.symbol import BoundSymbol
from thunder.ops.prims.gradient import get_grad, get_grad_or_none, put_grad

__all__ = ["GETTERS", "PUT_GRAD", "split_rule"]

#: the primitives that read a gradient
GETTERS: Final = frozenset({get_grad.id, get_grad_or_none.id})
PUT_GRAD: Final = put_grad.id


def split_rule(
    recorded: Sequence[BoundSymbol], results: Collection[str]
) -> tuple[list[BoundSymbol], list[BoundSymbol]]:
    """Split the calls of a rule into the forward and the step.

    The forward computes the values with the names ``results`` or has an effect, and reads no gradient.
    """
    from_gradients: set[str] = set()
    candidates = []
    for bsym in recorded:
        reads_gradient = bsym.sym.id in GETTERS or bsym.sym.id == PUT_GRAD
        if reads_gradient or any(p.name in from_gradients for p in bsym.flat_proxy_args):
            from_gradients.update(p.name for p in bsym.flat_proxy_outs)
        else:
            candidates.append(bsym)
    needed = set(results)
    forward: set[BoundSymbol] = set()
    for bsym in reversed(candidates):
        if has_effect(bsym) or any(p.name in needed for p in bsym.flat_proxy_outs):
            forward.add(bsym)
            needed.update(p.name for p in bsym.flat_proxy_args)
    return [b for b in recorded if b in forward], [b for b in recorded if b not in forward]
