"""The registry of executors: names, the default list, and the list of fallback executors.

The plugin manager holds the executors: one that a program registers becomes a plugin. The registry holds the
program's changes to the two lists. The public interface calls fallback executors "always executors".
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

from thunder.base.errors import (
    ExecutorUnavailable,
    InvalidArgument,
    PluginWarning,
    RegistrationError,
    UnknownExecutor,
    UserError,
    did_you_mean,
)
from thunder.base.plugin_calls import shown
from thunder.executor_base.executor import Executor
from thunder.ir.registered_operators import OperatorName, declare_finder
from thunder.ir.symbol import Symbol
from thunder.ops.operator import symbols_named
from thunder.plugins.contributions import contribute, isolated
from thunder.plugins.inline_plugin import InlinePlugin
from thunder.plugins.manager import PluginManager, get_manager
from thunder.plugins.plugin_info import PluginState
from thunder.plugins.specs import ExecutorSpec, Unavailable

__all__ = ["ExecutorRegistry", "get_registry"]

ExecutorOrName: TypeAlias = Executor | str


class ExecutorRegistry:
    """Executors by name and the two lists, for one plugin manager. Programs use that of `get_registry`."""

    def __init__(self, manager: PluginManager) -> None:
        self._manager = manager
        self._default: tuple[Executor, ...] | None = None  # None: as the plugins declare
        self._always: tuple[Executor, ...] | None = None
        self._warned: set[str] = set()

    # -- registering

    def register_executor(self, ex: Executor, *, default: bool = False, replace: bool = False) -> Executor:
        """Register an executor under its name and aliases; return it.

        It enters the default list only with `default=True`. Registering an object again has no effect. An
        executor replaces one that the program registered under its name, as when a notebook cell runs twice.
        Raises InvalidArgument for what is not an executor, and RegistrationError for a name that an installed
        plugin has, unless `replace=True`.
        """
        if not isinstance(ex, Executor):
            raise InvalidArgument(
                f"register_executor takes an executor, and got {shown(ex)}",
                hint="thunder.extend.OperatorExecutor('my_ex') makes one.",
            )
        for name in (ex.name, *ex.aliases):
            owner = self._manager.owner_of(name)
            if owner is None:
                continue
            if any(spec.target is ex for spec in owner.declares.executors):
                return ex
            if owner.state is PluginState.RUNTIME:
                self._manager.unregister(owner.name)
            elif replace:
                self._manager.withdraw(name)
            else:
                raise RegistrationError(
                    f"the executor name {name!r} belongs to plugin {owner.name!r}",
                    found={"first": owner.source, "second": repr(ex)},
                    hint="Choose another name, or pass replace=True.",
                )
        spec = ExecutorSpec(ex.name, ex, rank=ex.rank, default=default, aliases=ex.aliases)
        self._manager.register(InlinePlugin((spec,)), f"executor {ex.name}")
        self._default = _substituted(self._default, ex)
        self._always = _substituted(self._always, ex)
        if default and self._default is not None:
            self._default = add_executor_lists((ex,), self._default)
        return ex

    def deregister_executor(self, ex: ExecutorOrName) -> None:
        """Remove an executor from the registry and from both lists.

        Raises UnknownExecutor for an unknown name.
        """
        name = ex.name if isinstance(ex, Executor) else ex
        owner = self._manager.owner_of(name)
        if owner is None:
            self._unknown(name)
        name = self._spec_of(name).name
        if owner.state is PluginState.RUNTIME:
            self._manager.unregister(owner.name)
        else:
            self._manager.withdraw(name)
        self._default = None if self._default is None else _without(self._default, name)
        self._always = None if self._always is None else _without(self._always, name)

    # -- finding

    def get_executor(self, name: str) -> Executor:
        """Return the executor of this name or alias.

        Raises UnknownExecutor, with the nearest name, if there is none; ExecutorUnavailable if it cannot be
        used here; InvalidArgument for anything that is not a string.
        """
        if not isinstance(name, str):
            raise InvalidArgument(f"the name of an executor is a string, and not {shown(name)}")
        spec = self._spec_of(name)
        executor = self._manager.resolve(spec)
        if isinstance(executor, Unavailable):
            owner = self._manager.owner_of(spec.name)
            raise ExecutorUnavailable(
                f"executor {name!r} cannot be used here: {executor.reason}",
                found=None if owner is None else {"from": owner.source},
                facts={"executor": spec.name, "reason": executor.reason},
                hint="python -m thunder plugins lists what is installed.",
            ) from executor.cause
        contribute(self._manager, executor)
        return executor

    def get_all_executors(self, name: str | None = None) -> tuple[Executor, ...]:
        """Return every registered executor that can be used here, sorted by (rank, name).

        With a name it is the one of this name, and no other one is imported.
        """
        specs = (s for s in self._manager.executor_specs() if name in (None, s.name))
        resolved = map(self._manager.resolve, specs)
        return tuple(ex for ex in resolved if isinstance(ex, Executor))

    def _spec_of(self, name: str) -> ExecutorSpec:
        for spec in self._manager.executor_specs():
            if name == spec.name or name in spec.aliases:
                return spec
        self._unknown(name)

    def _unknown(self, name: str) -> NoReturn:
        # The executors of a plugin that was not loaded are unknown; often one has the plugin's name.
        for info in self._manager.list_plugins():
            if info.name == name and not info.is_loaded:
                raise ExecutorUnavailable(
                    f"executor {name!r} cannot be used here: its plugin is {info.state}: {info.reason}",
                    found={"from": info.source},
                    facts={"executor": name, "reason": info.reason},
                    hint="python -m thunder plugins lists what is installed.",
                )
        names = [n for spec in self._manager.executor_specs() for n in (spec.name, *spec.aliases)]
        raise UnknownExecutor(
            f"there is no executor {name!r}.{did_you_mean(name, names)}",
            found={"registered": ", ".join(names) or "none"},
            facts={"executor": name},
            hint="Install a package that provides it, or register it: thunder.extend.register_executor.",
        )

    # -- lists

    def get_default_executors(self) -> tuple[Executor, ...]:
        """Return the executors that `thunder.jit` uses by default."""
        if self._default is not None:
            return self._ready(self._default)
        return isolated(self._manager, self._default_executors)

    def _default_executors(self) -> tuple[Executor, ...]:
        usable = self._usable(spec for spec in self._manager.executor_specs() if spec.default)
        hook = "thunder_default_executors"
        for plugin, executors in self._manager.call(hook, executors=usable):
            if executors is not None:
                try:
                    return self._ready(self._resolve_all(executors, f"{hook} of plugin {plugin!r}"))
                except UserError as error:
                    raise self._manager.fault(plugin, error.asked, hook, error.hint) from error
        return usable

    def get_always_executors(self) -> tuple[Executor, ...]:
        """Return the fallback executors, which follow any other list of executors."""
        if self._always is not None:
            return self._ready(self._always)
        return self._usable(spec for spec in self._manager.executor_specs() if spec.always)

    def set_default_executors(self, executors: Iterable[ExecutorOrName] | None) -> tuple[Executor, ...]:
        """Set the default list, with None to what plugins declare, also later ones; return it."""
        self._default = None if executors is None else self._resolve_all(executors, "set_default_executors")
        return self.get_default_executors()

    def add_default_executor(self, ex: ExecutorOrName) -> tuple[Executor, ...]:
        """Add an executor at the front of the default list; return the new list."""
        return self.set_default_executors((ex, *_without(self.get_default_executors(), _name(ex))))

    def remove_default_executor(self, ex: ExecutorOrName) -> tuple[Executor, ...]:
        """Remove an executor from the default list; return the new list."""
        return self.set_default_executors(_without(self.get_default_executors(), self._name_in_lists(ex)))

    def set_always_executors(self, executors: Iterable[ExecutorOrName] | None) -> tuple[Executor, ...]:
        """Set the list of fallback executors, with None to what plugins declare; return it."""
        self._always = None if executors is None else self._resolve_all(executors, "set_always_executors")
        return self.get_always_executors()

    def add_always_executor(self, ex: ExecutorOrName) -> tuple[Executor, ...]:
        """Add an executor at the front of the fallback executors; return the new list."""
        return self.set_always_executors((ex, *_without(self.get_always_executors(), _name(ex))))

    def remove_always_executor(self, ex: ExecutorOrName) -> tuple[Executor, ...]:
        """Remove an executor from the fallback executors; return the new list."""
        return self.set_always_executors(_without(self.get_always_executors(), self._name_in_lists(ex)))

    def resolve_executors(
        self, executors: ExecutorOrName | Sequence[ExecutorOrName] | None = None
    ) -> tuple[Executor, ...]:
        """Return the executors of `thunder.jit(executors=...)`: names and objects, or None for the default.

        A duplicate keeps its first place. Raises InvalidArgument, UnknownExecutor, ExecutorUnavailable.
        """
        if executors is None:
            return self._ready(self.get_default_executors())
        if isinstance(executors, (Executor, str)):
            executors = (executors,)
        return self._ready(self._resolve_all(executors, "executors"))

    # -- inner

    def _ready(self, executors: tuple[Executor, ...]) -> tuple[Executor, ...]:
        """Update what plugins contribute to the executors; return them."""
        for ex in executors:
            contribute(self._manager, ex)
        return executors

    def _usable(self, specs: Iterable[ExecutorSpec]) -> tuple[Executor, ...]:
        usable: list[Executor] = []
        for spec in specs:
            ex = self._manager.resolve(spec)
            if isinstance(ex, Executor):
                usable.append(ex)
            elif not spec.missing and spec.name not in self._warned:
                # An absent library is not a fault. One that is installed and fails is reported once.
                self._warned.add(spec.name)
                owner = self._manager.owner_of(spec.name)
                source = owner.source if owner is not None else "the program"
                warnings.warn(
                    f"executor {spec.name!r} is left out of the default list: {ex.reason} (from {source})",
                    PluginWarning,
                    stacklevel=3,
                )
        return self._ready(tuple(usable))

    def _resolve_all(self, executors: Any, what: str) -> tuple[Executor, ...]:
        if not isinstance(executors, Iterable) or isinstance(executors, str):
            raise InvalidArgument(
                f"{what} takes executors, and got {executors!r}",
                hint="Give an executor, its name, or a sequence of both.",
            )
        resolved = tuple(self._resolve_one(item, what, position) for position, item in enumerate(executors))
        return add_executor_lists(resolved, ())

    def _resolve_one(self, item: object, what: str, position: int) -> Executor:
        if isinstance(item, Executor):
            return item
        if isinstance(item, str):
            return self.get_executor(item)
        if item is None:
            raise InvalidArgument(
                f"{what}[{position}] is None",
                hint="The function that should have returned this executor returned nothing. "
                "thunder.get_executor(name) says why an executor cannot be used.",
            )
        raise InvalidArgument(
            f"{what}[{position}] is an object of type {type(item).__name__}, not an executor",
            found={"found": repr(item)},
            hint="Give an executor or its name.",
        )

    def _name_in_lists(self, ex: ExecutorOrName) -> str:
        return ex.name if isinstance(ex, Executor) else self._spec_of(ex).name


def add_executor_lists(a: Sequence[Executor] | None, b: Sequence[Executor] | None) -> tuple[Executor, ...]:
    """Return both lists, one after the other, each executor at its first place; None is an empty list."""
    return tuple(dict.fromkeys((*(a or ()), *(b or ()))))


def _name(ex: ExecutorOrName) -> str:
    return ex.name if isinstance(ex, Executor) else ex


def _without(executors: tuple[Executor, ...], name: str) -> tuple[Executor, ...]:
    return tuple(ex for ex in executors if ex.name != name)


def _substituted(executors: tuple[Executor, ...] | None, ex: Executor) -> tuple[Executor, ...] | None:
    return None if executors is None else tuple(ex if old.name == ex.name else old for old in executors)


_registry = ExecutorRegistry(get_manager())


def get_registry() -> ExecutorRegistry:
    """Return the registry of this process."""
    return _registry


def _run_under(name: OperatorName) -> Iterator[Symbol]:
    """Yield the operators of executors that a name in a text may mean."""
    rows = list(symbols_named(name))
    ids = dict.fromkeys([*(row.id for row in rows), name.id or name.callee])
    executors = get_registry().get_all_executors(name.by)
    for ex in executors:
        own = ex.opmap.get(name.callee.rpartition(".")[2])
        run = [info.symbol for i in ids if (info := ex.implmap.get(i)) is not None]
        yield from (symbol for symbol in (own, *run) if symbol is not None)
        if name.by is not None:
            yield from (replace(row, executor=ex) for row in rows)
    if name.id is None:  # as a printed text has it
        for ex in executors:
            infos = (ex.implmap[i] for i in ex.implmap)
            yield from (info.symbol for info in infos if info.symbol is not None)


declare_finder(_run_under)
