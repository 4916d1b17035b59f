"""The reason why a fusion executor left a call out of its regions, attached to the call."""

from __future__ import annotations

from thunder.base.tags import OpenTag
from thunder.executor_base.refusal import Refusal
from thunder.ir.symbol import BoundSymbol

__all__ = ["left_out", "no_reason", "reason_left_out"]


class _LeftOut(OpenTag):
    """A tag with the reason; it is read and dropped when another executor claims the call."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__("LEFT_OUT")
        self.reason = reason


def left_out(bsym: BoundSymbol, reason: Refusal) -> BoundSymbol:
    """Return the call with the reason why a fusion pass put it into no region.

    The ledger shows its message and facts, under the code `not-fused`.
    """
    refusal = Refusal("not-fused", reason.message, **reason.facts)
    return bsym.from_bsym(tags={*bsym.own_tags, _LeftOut(refusal)})


def no_reason(executor: str, operator_id: str) -> Refusal:
    """Return the refusal of a call that a fusion pass put into no region, without a reason."""
    return Refusal("not-fused", f"{executor} put {operator_id} into no region")


def reason_left_out(bsym: BoundSymbol) -> tuple[BoundSymbol, Refusal | None]:
    """Return the call without its reason, and the reason; None if the fusion pass gave none."""
    reasons = [tag for tag in bsym.own_tags if isinstance(tag, _LeftOut)]
    if not reasons:
        return bsym, None
    return bsym.from_bsym(tags=bsym.own_tags.difference(reasons)), reasons[0].reason
