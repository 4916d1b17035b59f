"""Every hook that a plugin can implement: when it is called, with what, and what its result means.

A plugin is a module (or any object) with functions of these names, marked with `thunder.plugins.hookimpl`,
that an entry point of the group `thunder.plugins` leads to. A function takes those of the arguments that it
wants.

Results of all plugins are merged. Order comes from ranks and names, so `tryfirst`, `trylast` and wrappers
have no place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeAlias

from thunder.base.options import Option
from thunder.executor_base.executor import Executor, Refusal
from thunder.ir.symbol import Symbol
from thunder.ops.operator import Operator
from thunder.plugins.markers import hookspec
from thunder.plugins.specs import DeviceProfile, ExecutorSpec, TransformSpec

Checker: TypeAlias = tuple[Symbol | str, Callable[..., bool | Refusal]]
Rule: TypeAlias = tuple[Symbol | str, Callable[..., Any]]

# --- declarations: called once per plugin, when plugins load; import nothing heavy


@hookspec
def thunder_executors() -> Iterable[ExecutorSpec | Executor]:  # type: ignore[empty-body]
    """Executors that the plugin brings.

    Called when plugins load, which is at the first need of an executor, a transform or an option. Return
    specs, which name the executors without importing them, or Executor objects whose import costs nothing.
    """


@hookspec
def thunder_transforms() -> Iterable[TransformSpec]:  # type: ignore[empty-body]
    """Transforms that the plugin brings, to be found as `thunder.transforms.<name>`. Called when plugins
    load.
    """


@hookspec
def thunder_options() -> Iterable[Option]:  # type: ignore[empty-body]
    """Options that the plugin adds to `thunder.jit`.

    Called when plugins load, so that the options of an installed but unusable plugin are known. Several
    plugins may declare the same option, if they declare it alike.
    """


@hookspec(historic=True)
def thunder_configure(manager: Any) -> None:
    """Set-up of the plugin. Called once, when the plugin is registered, with the `PluginManager`."""


# --- contributions: called when there is something to contribute to


@hookspec
def thunder_operators(executor: Executor) -> Iterable[Operator]:  # type: ignore[empty-body]
    """Operator rows for an executor.

    Called for every executor when it is first used, and again after a plugin came or went; as are the next
    three. The row's `eager` function becomes the executor's implementation. `for_executor` saves the test on
    the name.
    """


@hookspec
def thunder_checkers(executor: Executor) -> Iterable[Checker]:  # type: ignore[empty-body]
    """Pairs (operator, checker): the checker replaces the one that the executor has for the operator."""


@hookspec
def thunder_execution_transforms(executor: Executor) -> Iterable[Rule]:  # type: ignore[empty-body]
    """Pairs (operator, execution transform), as `register_implementation` takes it."""


@hookspec
def thunder_grad_transforms(executor: Executor) -> Iterable[Rule]:  # type: ignore[empty-body]
    """Pairs (operator, grad transform), as `register_implementation` takes it."""


@hookspec
def thunder_recipes() -> Mapping[str, type]:  # type: ignore[empty-body]
    """Name → Recipe or Plugin class. Called at the first `thunder.compile`."""


@hookspec
def thunder_devices() -> Iterable[DeviceProfile]:  # type: ignore[empty-body]
    """Profiles of devices, which need not be here. Called when a profile is first asked for."""


@hookspec
def thunder_pipeline(pipeline: Any, options: Mapping[str, Any]) -> None:
    """Inserts named stages into the pipeline of one compile; called in the order of (rank, name) of the
    plugins.

    A plugin's rank is the smallest of the executors that it declares, `Rank.EAGER` if it declares none.
    """


@hookspec
def thunder_cache_state() -> Mapping[str, Hashable]:  # type: ignore[empty-body]
    """State outside the program that its traces depend on: name → value.

    Called at every call of a compiled object, so it must be cheap. A changed value is a cache miss, and its
    name appears among the reasons.
    """


@hookspec(firstresult=True)
def thunder_default_executors(executors: tuple[Executor, ...]) -> Iterable[Executor] | None:
    """The last word on the default list: returns another list, or None to leave it to the next plugin.

    Called when the default list is computed. The first plugin, in the order of `thunder_pipeline`, that
    returns a list decides.
    """
