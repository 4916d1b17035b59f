"""A plugin object without a module: for the built-in executors, and for what a program registers."""

from __future__ import annotations

from dataclasses import dataclass

from thunder.base.options import Option
from thunder.executor_base.executor import Executor
from thunder.plugins.markers import hookimpl
from thunder.plugins.specs import ExecutorSpec

__all__ = ["InlinePlugin"]


@dataclass(frozen=True, eq=False)
class InlinePlugin:
    """A plugin that declares these executors and options."""

    executors: tuple[ExecutorSpec, ...] = ()
    options: tuple[Option, ...] = ()

    @property
    def defined_in(self) -> str | None:
        """The module that defined the first of the executors, or None."""
        targets = (spec.target for spec in self.executors)
        return next((target.defined_in for target in targets if isinstance(target, Executor)), None)

    @hookimpl
    def thunder_executors(self) -> tuple[ExecutorSpec, ...]:
        """The executors."""
        return self.executors

    @hookimpl
    def thunder_options(self) -> tuple[Option, ...]:
        """The options."""
        return self.options
