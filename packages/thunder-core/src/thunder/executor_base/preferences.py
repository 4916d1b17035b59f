"""Preferences among the executors that accept a call, as a package has measured them.

A stage of a package puts an object into `context.preferences`; the later stages of the compile ask it. Core
measures nothing: it asks for a name, and shows the figures that come with it.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from thunder.base.context_variables import assigned
from thunder.executor_base.executor import Executor
from thunder.executor_base.refusal import Refusal
from thunder.ir.symbol import BoundSymbol

if TYPE_CHECKING:
    from thunder.ir.fusion_regions import Region

__all__ = ["Preference", "Preferences", "preferences", "preferring"]


@dataclass(frozen=True, slots=True)
class Preference:
    """The executor that runs a call if it accepts it, and why others do not.

    `executor` is None where the preferred one is absent. `cost` is its time in microseconds. `refusals` has
    the names of others, each with the reason that the ledger shows, such as their times.
    """

    executor: str | None
    cost: float | None = None
    refusals: tuple[tuple[str, Refusal], ...] = ()


class Preferences(Protocol):
    """What is preferred in one compile."""

    def of_call(self, bsym: BoundSymbol) -> Preference | None:
        """Return the preference for a call, or None: then the order of the executors decides."""

    def refuse_region(self, executor: Executor, region: Region) -> Refusal | None:
        """Return why the calls of a region are left to other executors, or None: it is compiled."""


_in_force: ContextVar[Preferences | None] = ContextVar("thunder_preferences", default=None)


def preferences() -> Preferences | None:
    """Return the preferences in force, or None."""
    return _in_force.get()


def preferring(value: Preferences | None) -> AbstractContextManager[None]:
    """Within the context, these preferences are in force."""
    return assigned(_in_force, value)
