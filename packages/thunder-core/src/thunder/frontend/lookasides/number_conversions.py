"""Lookasides for the functions that make a number of an object: the rules are those of its type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.frontend.lookasides.lookaside_registry import LookasideRule, LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.frontend.types.conversions import METHODS

TABLE = LookasideTable(COMPUTES, only_reads=True)


def _conversion(native: Callable[..., Any]) -> LookasideRule:
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        convert = session.handlers[type(args[0])].number if len(args) == 1 and not kwargs else None
        number = NotImplemented if convert is None else convert(session, args[0], native)
        return session.machine.generic_call(native, args, kwargs) if number is NotImplemented else number

    return rule


for _native in METHODS:
    TABLE.lookaside(_native)(_conversion(_native))
