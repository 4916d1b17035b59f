"""Every hook that a plugin can implement: when it is called, with what, and what its result means.

A plugin is a module (or any object) with functions of these names, marked with `thunder.plugins.hookimpl`,
that an entry point of the group `thunder.plugins` leads to. A function takes those of the arguments that it
needs.

pluggy marks, parses and holds the implementations. The manager calls them one by one, in the order of the
plugins' ranks and names, so that a fault is attributed to one plugin and the order does not depend on which
plugin was found first. Each hook says how results are merged. Marks that ask for another order or another
merge (`tryfirst`, `trylast`, wrappers) are refused when a plugin is registered.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, TypeAlias

from thunder.base.options import Option
from thunder.base.public_names import NamesOfModules
from thunder.executor_base.executor import Executor
from thunder.executor_base.refusal import Refusal
from thunder.ir.symbol import Symbol
from thunder.ops.operator import Operator
from thunder.plugins.markers import hookspec
from thunder.plugins.specs import CompileEvent, DeviceProfile, ExecutorSpec, Lookaside, TransformSpec

#: (operator or its id, checker)
OperatorChecker: TypeAlias = tuple[Symbol | str, Callable[..., bool | Refusal]]
#: (operator or its id, function of the call's arguments that returns its time in microseconds)
OperatorCost: TypeAlias = tuple[Symbol | str, Callable[..., float]]
#: (operator or its id, execution transform or grad transform)
OperatorTransform: TypeAlias = tuple[Symbol | str, Callable[..., Any]]

# --- declarations: called once per plugin, when plugins load; implementations import nothing slow


@hookspec
def thunder_executors() -> Iterable[ExecutorSpec | Executor]:  # type: ignore[empty-body]
    """Declare the plugin's executors.

    Called when plugins load: when an executor, a transform or an option is first needed. Return specs, which
    name the executors without importing them, or Executor objects that are cheap to import.
    """


@hookspec
def thunder_transforms() -> Iterable[TransformSpec]:  # type: ignore[empty-body]
    """Declare the plugin's transforms, found as `thunder.transforms.<name>`. Called when plugins load."""


@hookspec
def thunder_options() -> Iterable[Option]:  # type: ignore[empty-body]
    """Declare options that the plugin adds to `thunder.jit`.

    Called when plugins load, so that the options of an installed but unusable plugin are known. Several
    plugins may declare an option of one name if their declarations are equal.
    """


@hookspec(historic=True)
def thunder_configure(manager: Any) -> None:
    """Set the plugin up. Called once, with the `PluginManager`, when the plugin is registered."""


# --- contributions: called when there is something to contribute to


@hookspec
def thunder_operators(executor: Executor) -> Iterable[Operator]:  # type: ignore[empty-body]
    """Add operator rows to an executor.

    Called for each executor when it is first used, and again after a plugin was registered or unregistered;
    so are the next four hooks. The row's `eager` function becomes the executor's implementation.
    `for_executor` restricts an implementation to executors of given names.
    """


@hookspec
def thunder_checkers(executor: Executor) -> Iterable[OperatorChecker]:  # type: ignore[empty-body]
    """Replace checkers of an executor: pairs (operator, checker)."""


@hookspec
def thunder_execution_transforms(executor: Executor) -> Iterable[OperatorTransform]:  # type: ignore[empty-body]
    """Add pairs (operator, execution transform), as `register_implementation` takes them."""


@hookspec
def thunder_grad_transforms(executor: Executor) -> Iterable[OperatorTransform]:  # type: ignore[empty-body]
    """Add pairs (operator, grad transform), as `register_implementation` takes them."""


@hookspec
def thunder_costs(executor: Executor) -> Iterable[OperatorCost]:  # type: ignore[empty-body]
    """Give operators of an executor a cost: pairs (operator, cost), as `register_implementation` takes them.

    A cost for an operator that the executor does not implement is not used.
    """


@hookspec
def thunder_recipes() -> Mapping[str, type[Any]]:  # type: ignore[empty-body]
    """Provide recipes for `thunder.compile`: name → a class of `thunder.Recipe` or `thunder.Plugin`.

    Called at the first `thunder.compile`, and again after a plugin was registered or unregistered. A recipe
    whose name is a prefix of `module.Class` of a model is used for such models. Two plugins must not use one
    name.
    """


@hookspec
def thunder_devices() -> Iterable[DeviceProfile]:  # type: ignore[empty-body]
    """Add profiles of devices, present or not. Called when a profile is first needed.

    Of two profiles with one name, that of the first plugin is used.
    """


@hookspec
def thunder_lookasides() -> Iterable[Lookaside]:  # type: ignore[empty-body]
    """Replace Python functions in traced programs by code that is traced in their place.

    Called at each compile, so it may leave out functions of libraries that are not imported. For a function,
    the first replacement that a plugin returns is used as long as the plugin is registered. Two plugins must
    not replace one function; a replacement that `thunder.jit` received comes before those of plugins. A
    program that was compiled with other replacements is compiled again.
    """


@hookspec
def thunder_session_rules() -> Iterable[Any]:  # type: ignore[empty-body]
    """Add rules by which programs that use a library are traced: `thunder.core.session.SessionRules`.

    Called at the first compile, and again after a plugin was registered or unregistered; the library need not
    be imported. Two plugins must not have a rule for one function or type. A program that was compiled with
    other plugins of this hook is compiled again.
    """


@hookspec
def thunder_pipeline(pipeline: Any, options: Mapping[str, Any]) -> None:
    """Add named stages to the pipeline of one compile: `pipeline.add(name, fn, before=…, after=…)`.

    Called at each compile. The order of the stages does not depend on the order of the plugins.
    """


@hookspec
def thunder_compiled(event: CompileEvent) -> None:
    """Take notice of a compile or recompile, with its reasons.

    Called once after each compile of a call, also of one that failed, before the compiled program first runs.
    It must not call the compiled object.
    """


@hookspec
def thunder_cache_state(options: Mapping[str, Any]) -> Mapping[str, Hashable] | None:
    """Return state outside the program on which its traces depend: name → hashable value.

    Called at each call of a compiled object, with its options, so it must be cheap. A changed value is a
    cache miss, whose reason has the name. Two plugins must not use one name. None says that there is no state
    for programs with these options, which then are not asked again.
    """


@hookspec
def thunder_default_executors(executors: tuple[Executor, ...]) -> Iterable[Executor] | None:
    """Replace the default list of executors; None leaves it to the next plugin.

    Called when the default list is computed. The first result that is not None is used, and no further
    implementation is called.
    """


@hookspec
def thunder_program_store() -> Any:
    """Provide an object that keeps programs from one process to the next, or None.

    Called at each compile. The object has two methods (`thunder.compiler.kept_programs.ProgramStore`): one
    returns the cache entry of a call, before the program is read, the other takes a new entry. The objects of
    all plugins are asked in their order until one has an entry, and each is given a new one. With a third
    one, `revise`, it puts another entry with the same guards in the place of one that was compiled.
    """


@hookspec
def thunder_mesh_planner() -> Callable[..., Any] | None:
    """Provide the function that plans for a mesh of devices; None leaves it to the next plugin.

    Called at each `thunder.plan` with `mesh=`. The function is called as `planner(fn, *args, mesh=mesh,
    **settings)`, with the settings that `thunder.plan` has received. The first one is used.
    """


@hookspec
def thunder_names() -> NamesOfModules:  # type: ignore[empty-body]
    """Add names to modules under `thunder`, and modules that have no file: names of another project.

    Return module → name → `Alias` or `Replaced`; `"module:Class"` is a class of core that looks names up, and
    a module that is itself `Replaced` does not exist. Called when a name is missing, and again after a plugin
    was registered or unregistered. A name that a module has is not looked up; of two plugins with one module,
    both add names to it, and they must not add the same.
    """


@hookspec
def thunder_commands() -> Iterable[str]:  # type: ignore[empty-body]
    """Add commands to `python -m thunder`: names of modules with a function `add(commands)`, as core's have.

    Called when a command that core does not have is named, and for the list of commands.
    """
