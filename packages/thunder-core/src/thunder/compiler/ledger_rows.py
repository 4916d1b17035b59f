"""The rows of the placement ledger, as its users see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thunder.base.errors import Location
from thunder.executor_base.refusal import Refusal
from thunder.passes.placement import Via

__all__ = ["ExecutorReason", "LedgerRow"]


@dataclass(frozen=True)
class ExecutorReason:
    """The reason of an executor that does not run a call: a refusal, or why it was skipped.

    The codes of core are in :mod:`thunder.compiler.ledger_codes`; a checker may use others.
    """

    executor: str
    code: str
    message: str
    facts: Mapping[str, Any]

    @classmethod
    def of(cls, executor: str, refusal: Refusal) -> ExecutorReason:
        """Return the reason that an executor's refusal gives."""
        return cls(executor, refusal.code, refusal.message, dict(refusal.facts))


@dataclass(frozen=True, kw_only=True)
class LedgerRow:
    """One call of the program and the executor that runs it.

    `trace` is `"forward"` or `"backward"`; `via` is described at
    :data:`~thunder.passes.placement.Via`. `refusals` has a reason for each executor that was
    consulted before, `skipped` for each other one of the compile. `source` is the user's line; where it
    calls a module of torch, such as an `nn.Linear`, `inner` is the line of torch that calls the operator.
    """

    index: int
    trace: str
    symbol: str
    outputs: tuple[str, ...]
    claimed_by: str | None
    via: Via
    refusals: tuple[ExecutorReason, ...]
    skipped: tuple[ExecutorReason, ...] = ()
    #: the expected time of the call in microseconds, if costs decided which executor runs it
    cost: float | None = None
    source: Location | None
    inner: Location | None = None
    #: the name of the module whose method made the call ("layers.3.attention"), or ""
    module: str = ""
    #: what the author of the operator lets the ledger show, by name
    facts: Mapping[str, Any] = field(default_factory=dict)
