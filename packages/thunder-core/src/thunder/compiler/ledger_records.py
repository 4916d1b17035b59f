"""The records of the placement ledger, as its users see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder.base.errors import Location
from thunder.executor_base.executor import Refusal

__all__ = ["LedgerRow", "RefusalRecord"]


@dataclass(frozen=True)
class RefusalRecord:
    """Why one executor did not take a call: the answer of its checker, or why it was not asked."""

    executor: str
    code: str
    message: str
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, executor: str, refusal: Refusal) -> RefusalRecord:
        """The record of an executor's refusal."""
        return cls(executor, refusal.code, refusal.message, dict(refusal.facts))


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """What became of one call. `trace` is `"forward"` or `"backward"`; `via` is described at `Placement`.

    `refusals` has a record for each executor that was asked before, `not_asked` for each other one of this
    compile. `source` is the user's line; where it calls a module of torch, such as an `nn.Linear`, `inner` is
    the line there that calls the operator.
    """

    index: int
    trace: str
    symbol: str
    outputs: tuple[str, ...]
    claimed_by: str | None
    via: str
    refusals: tuple[RefusalRecord, ...]
    not_asked: tuple[RefusalRecord, ...] = ()
    source: Location | None
    inner: Location | None = None
