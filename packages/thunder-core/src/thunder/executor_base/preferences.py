"""Preferences among the executors that accept a call, as a package has measured them.

A stage of a package puts an object into `context.preferences`; the later stages of the compile ask it. Core
measures nothing: it asks for a name, and shows the figures that come with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from thunder.base.context_variables import assigned
from thunder.executor_base.executor import Executor
from thunder.executor_base.refusal import Refusal
from thunder.ir.symbol import BoundSymbol

if TYPE_CHECKING:
    from thunder.ir.fusion_regions import Region

__all__ = ["Preference", "Preferences", "RegionPreference", "preferences", "preferring"]


@dataclass(frozen=True, slots=True)
class Preference:
    """The executor that runs a call if it accepts it, and why others do not.

    `executor` is None where the preferred one is absent. `cost` is its time in microseconds. `refusals` has
    the names of others, each with the reason that the ledger shows, such as their times. `options` are values
    of options of the compile while the executor claims the call.
    """

    executor: str | None
    cost: float | None = None
    refusals: tuple[tuple[str, Refusal], ...] = ()
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class RegionPreference:
    """What becomes of a region that an executor would compile.

    With a `refusal` its calls are left to other executors. `cuts` are positions in its calls before which it
    is cut, where that is possible; each part is asked about as a region of its own. It is compiled with the
    values of `options`.
    """

    refusal: Refusal | None = None
    cuts: tuple[int, ...] = ()
    options: Mapping[str, Any] | None = None


class Preferences(Protocol):
    """What is preferred in one compile."""

    def of_call(self, bsym: BoundSymbol) -> Preference | None:
        """Return the preference for a call, or None: then the order of the executors decides."""

    def of_region(self, executor: Executor, region: Region) -> RegionPreference | None:
        """Return the preference for a region, or None: it is compiled as it is."""


_in_force: ContextVar[Preferences | None] = ContextVar("thunder_preferences", default=None)


def preferences() -> Preferences | None:
    """Return the preferences in force, or None."""
    return _in_force.get()


def preferring(value: Preferences | None) -> AbstractContextManager[None]:
    """Within the context, these preferences are in force."""
    return assigned(_in_force, value)
