"""The registry of executors: names, the default list, the list of those that are asked last.

There is one registry, that of plugins. An executor that a program registers is wrapped into a plugin of its
own; what is kept here are the program's changes to the two lists.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
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
from thunder.executor_base.executor import Executor
from thunder.plugins.contributions import contribute, isolated
from thunder.plugins.inline_plugin import AdHocPlugin
from thunder.plugins.manager import PluginManager, get_manager
from thunder.plugins.plugin_info import PluginState
from thunder.plugins.specs import ExecutorSpec, Unavailable

__all__ = ["ExecutorRegistry", "get_registry"]

Given: TypeAlias = Executor | str


class ExecutorRegistry:
    """Executors by name and the two lists, on top of a plugin manager. Programs use the one of
    `get_registry`.
    """

    def __init__(self, manager: PluginManager) -> None:
        self._manager = manager
        self._default: tuple[Executor, ...] | None = None  # None: as the plugins say
        self._always: tuple[Executor, ...] | None = None
        self._warned: set[str] = set()

    # -- registering

    def register_executor(self, ex: Executor, *, default: bool = False, replace: bool = False) -> Executor:
        """Makes an executor known by its name and aliases; returns it.

        It enters the default list only with `default=True`. The same object again has no effect. Another
        object under a name that the program registered before takes its place, as when a notebook cell runs
        twice. Under a name that an installed plugin owns, RegistrationError is raised unless `replace=True`.
        """
        if not isinstance(ex, Executor):
            raise InvalidArgument(
                f"register_executor takes an executor, and {ex!r} is an object of type {type(ex).__name__}",
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
        self._manager.register(AdHocPlugin((spec,)), f"executor {ex.name}")
        self._default = _substituted(self._default, ex)
        self._always = _substituted(self._always, ex)
        if default and self._default is not None:
            self._default = add_executor_lists((ex,), self._default)
        return ex

    def deregister_executor(self, ex: Given) -> None:
        """Removes an executor from the registry and from both lists. Raises UnknownExecutor for an unknown
        name.
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
        """The executor of this name or alias.

        Raises UnknownExecutor (with the nearest name) if there is none, ExecutorUnavailable if it cannot be
        used here.
        """
        spec = self._spec_of(name)
        found = self._manager.resolve(spec)
        if isinstance(found, Unavailable):
            owner = self._manager.owner_of(spec.name)
            raise ExecutorUnavailable(
                f"executor {name!r} cannot be used here: {found.reason}",
                found=None if owner is None else {"from": owner.source},
                facts={"executor": spec.name, "reason": found.reason},
                hint="python -m thunder plugins lists what is installed.",
            ) from found.cause
        contribute(self._manager, found)
        return found

    def get_all_executors(self) -> tuple[Executor, ...]:
        """Every registered executor that can be used here, sorted by (rank, name)."""
        found = (self._manager.resolve(spec) for spec in self._manager.executor_specs())
        return tuple(ex for ex in found if isinstance(ex, Executor))

    def _spec_of(self, name: str) -> ExecutorSpec:
        for spec in self._manager.executor_specs():
            if name == spec.name or name in spec.aliases:
                return spec
        self._unknown(name)

    def _unknown(self, name: str) -> NoReturn:
        # What a plugin that was not loaded would have brought is not known, but often it is called like the
        # plugin.
        for info in self._manager.list_plugins():
            if info.name == name and not info.is_loaded:
                raise ExecutorUnavailable(
                    f"executor {name!r} cannot be used here: its plugin is {info.state}: {info.reason}",
                    found={"from": info.source},
                    facts={"executor": name, "reason": info.reason},
                    hint="python -m thunder plugins lists what is installed.",
                )
        known = [n for spec in self._manager.executor_specs() for n in (spec.name, *spec.aliases)]
        raise UnknownExecutor(
            f"there is no executor {name!r}.{did_you_mean(name, known)}",
            found={"registered": ", ".join(known) or "none"},
            facts={"executor": name},
            hint="It comes with a package named thunder-<name>, or from thunder.extend.register_executor.",
        )

    # -- lists

    def get_default_executors(self) -> tuple[Executor, ...]:
        """The executors that `thunder.jit` uses when none are given."""
        if self._default is not None:
            return self._ready(self._default)
        return isolated(self._manager, self._default_executors)

    def _default_executors(self) -> tuple[Executor, ...]:
        usable = self._usable(spec for spec in self._manager.executor_specs() if spec.default)
        hook = "thunder_default_executors"
        for plugin, answer in self._manager.call(hook, executors=usable):
            if answer is not None:
                try:
                    return self._ready(self._resolve_all(answer, f"{hook} of plugin {plugin!r}"))
                except UserError as error:
                    raise self._manager.fault(plugin, error.asked, hook, error.hint) from error
        return usable

    def get_always_executors(self) -> tuple[Executor, ...]:
        """The executors that are asked last, whatever list was given."""
        if self._always is not None:
            return self._ready(self._always)
        return self._usable(spec for spec in self._manager.executor_specs() if spec.always)

    def set_default_executors(self, executors: Iterable[Given]) -> tuple[Executor, ...]:
        """Sets the default list; returns it."""
        self._default = self._resolve_all(executors, "set_default_executors")
        return self._default

    def add_default_executor(self, ex: Given) -> tuple[Executor, ...]:
        """Puts an executor in front of the default list; returns the new list."""
        return self.set_default_executors((ex, *_without(self.get_default_executors(), _name(ex))))

    def remove_default_executor(self, ex: Given) -> tuple[Executor, ...]:
        """Takes an executor out of the default list; returns the new list."""
        return self.set_default_executors(_without(self.get_default_executors(), self._name_in_lists(ex)))

    def set_always_executors(self, executors: Iterable[Given]) -> tuple[Executor, ...]:
        """Sets the list of those that are asked last; returns it."""
        self._always = self._resolve_all(executors, "set_always_executors")
        return self._always

    def add_always_executor(self, ex: Given) -> tuple[Executor, ...]:
        """Puts an executor in front of those that are asked last; returns the new list."""
        return self.set_always_executors((ex, *_without(self.get_always_executors(), _name(ex))))

    def remove_always_executor(self, ex: Given) -> tuple[Executor, ...]:
        """Takes an executor out of those that are asked last; returns the new list."""
        return self.set_always_executors(_without(self.get_always_executors(), self._name_in_lists(ex)))

    def resolve_executors(self, executors: Given | Sequence[Given] | None = None) -> tuple[Executor, ...]:
        """The executors meant by what a user gives to `thunder.jit`: names and objects, or None for the
        default list.

        Duplicates keep their first place. Raises InvalidArgument, UnknownExecutor, ExecutorUnavailable.
        """
        if executors is None:
            found = self.get_default_executors()
        elif isinstance(executors, (Executor, str)):
            found = self._resolve_all((executors,), "executors")
        else:
            found = self._resolve_all(executors, "executors")
        return self._ready(found)

    # -- inner

    def _ready(self, executors: tuple[Executor, ...]) -> tuple[Executor, ...]:
        """The same executors, with what plugins contribute to them up to date."""
        for ex in executors:
            contribute(self._manager, ex)
        return executors

    def _usable(self, specs: Iterable[ExecutorSpec]) -> tuple[Executor, ...]:
        found: list[Executor] = []
        for spec in specs:
            ex = self._manager.resolve(spec)
            if isinstance(ex, Executor):
                found.append(ex)
            elif not spec.missing and spec.name not in self._warned:
                # An absent library is no fault. One that is there and fails should be heard of, once.
                self._warned.add(spec.name)
                owner = self._manager.owner_of(spec.name)
                source = owner.source if owner is not None else "the program"
                warnings.warn(
                    f"executor {spec.name!r} is left out of the default list: {ex.reason} (from {source})",
                    PluginWarning,
                    stacklevel=3,
                )
        return self._ready(tuple(found))

    def _resolve_all(self, given: Any, what: str) -> tuple[Executor, ...]:
        if not isinstance(given, Iterable) or isinstance(given, str):
            raise InvalidArgument(
                f"{what} takes executors, and got {given!r}",
                hint="Give an executor, its name, or a sequence of both.",
            )
        found = tuple(self._resolve_one(item, what, position) for position, item in enumerate(given))
        return add_executor_lists(found, ())

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

    def _name_in_lists(self, ex: Given) -> str:
        return ex.name if isinstance(ex, Executor) else self._spec_of(ex).name


def add_executor_lists(a: Sequence[Executor] | None, b: Sequence[Executor] | None) -> tuple[Executor, ...]:
    """Both lists one after the other, each executor at its first place; None is an empty list."""
    return tuple(dict.fromkeys((*(a or ()), *(b or ()))))


def _name(ex: Given) -> str:
    return ex.name if isinstance(ex, Executor) else ex


def _without(executors: tuple[Executor, ...], name: str) -> tuple[Executor, ...]:
    return tuple(ex for ex in executors if ex.name != name)


def _substituted(executors: tuple[Executor, ...] | None, ex: Executor) -> tuple[Executor, ...] | None:
    return None if executors is None else tuple(ex if old.name == ex.name else old for old in executors)


_registry = ExecutorRegistry(get_manager())


def get_registry() -> ExecutorRegistry:
    """The registry of this process."""
    return _registry
