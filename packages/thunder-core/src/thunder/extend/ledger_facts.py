"""Declares what the placement ledger shows of an operator's calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from thunder.ir.symbol import BoundSymbol, Symbol

__all__ = ["ledger_facts", "register_ledger_facts"]

#: operator id → from a call to its facts by name
_facts: dict[str, Callable[[BoundSymbol], Mapping[str, Any]]] = {}


def register_ledger_facts(operator: Symbol | str, facts: Callable[[BoundSymbol], Mapping[str, Any]]) -> None:
    """Let the ledger show facts of the calls of an operator, such as the bytes that a collective sends.

    Args:
        operator: the operator or its id.
        facts: takes the call, a bound symbol, and returns facts by name, of the call alone.
    """
    _facts[operator if isinstance(operator, str) else str(operator.id)] = facts


def ledger_facts(bsym: BoundSymbol) -> dict[str, Any]:
    """Return the facts of a call; none where nothing was registered."""
    facts = _facts.get(str(bsym.sym.id))
    return dict(facts(bsym)) if facts is not None else {}
