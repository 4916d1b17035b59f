"""The plugin manager: finds plugins, loads them, keeps a faulty one from harming the rest, calls their hooks.

Nothing is looked up before the first need. Loading a plugin runs its module, which imports no library of
weight; the executors that it declares are imported one by one, when they are resolved.

A plugin that cannot be loaded is put on record with the reason, one warning names it, and everything else
works on.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import Any

import pluggy

from thunder.base.errors import PluginError, PluginWarning, RegistrationError, ThunderError
from thunder.executor_base.executor import Executor
from thunder.plugins import hookspecs
from thunder.plugins.compatibility import api_fault, requirement_fault
from thunder.plugins.discovery import Candidate, installed_plugins
from thunder.plugins.hook_validation import hook_fault
from thunder.plugins.inline_plugin import AdHocPlugin
from thunder.plugins.load_policy import Policy
from thunder.plugins.markers import PROJECT
from thunder.plugins.plugin_info import Declarations, PluginInfo, PluginState, collect_declarations
from thunder.plugins.specs import ExecutorSpec, Unavailable, load_target, resolve_executor

__all__ = ["PluginManager", "get_manager"]


class PluginManager:
    """All plugins of a process. Programs use the one that `get_manager` returns; tests make their own.

    Args:
        builtin: the executors that are part of core; each makes a plugin of its name.
        discover: finds the installed plugins.
        environment: holds the variables of `thunder.plugins.load_policy`; read when plugins load.
    """

    def __init__(
        self,
        *,
        builtin: Iterable[ExecutorSpec] = (),
        discover: Callable[[], Iterable[Candidate]] = installed_plugins,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._builtin = tuple(map(Candidate.of_builtin, builtin))
        self._discover = discover
        self._environment = environment
        self._lock = threading.RLock()
        self._is_loaded = False
        self._plugins: dict[str, PluginInfo] = {}
        self._resolved: dict[str, Executor | Unavailable] = {}
        self._implementations: dict[str, tuple[pluggy.HookImpl, ...]] = {}
        self._pluggy = pluggy.PluginManager(PROJECT)
        self._pluggy.add_hookspecs(hookspecs)
        # Historic: plugins that are registered later get the call too.
        self._pluggy.hook.thunder_configure.call_historic(kwargs={"manager": self})
        self.generation: object = object()
        """Another object after every change; what was computed from plugins is kept as long as it is the
        same.
        """

    # -- loading

    def set_builtin(self, executors: Iterable[ExecutorSpec], modules: Mapping[str, str]) -> None:
        """Says which plugins are part of core, before anything is loaded: one for each executor, and modules
        by the names of the plugins.
        """
        assert not self._is_loaded, "the built-in plugins are named before any plugin is loaded"
        named = [Candidate.of_core(name, module) for name, module in modules.items()]
        self._builtin = (*map(Candidate.of_builtin, executors), *named)

    def load(self) -> None:
        """Loads all plugins, once. Under `THUNDER_PLUGIN_STRICT=1` raises PluginError for the first that
        cannot be.
        """
        if self._is_loaded:
            return
        with self._lock:
            if self._is_loaded:
                return
            self._is_loaded = True  # before the loop: a plugin may ask for executors while it is imported
            policy = Policy.from_environment(self._environment)
            for candidate in self._builtin:
                self._load_one(candidate, policy)
            for candidate in self._discover() if policy.autoload else ():
                self._load_one(candidate, policy)

    def _load_one(self, candidate: Candidate, policy: Policy) -> None:
        info = PluginInfo(
            name=candidate.name,
            state=PluginState.BUILTIN if candidate.is_builtin else PluginState.LOADED,
            package=candidate.distribution,
            version=candidate.version,
            module=candidate.target,
        )
        if candidate.name in self._plugins:
            first = self._plugins[candidate.name]
            info = replace(info, name=f"{candidate.name} ({candidate.distribution})")
            return self._reject(
                info, PluginState.FAILED, f"the plugin name {first.name!r} is taken by {first.source}"
            )
        blocked = policy.blocks(candidate)
        if blocked is not None:
            self._enter(replace(info, state=PluginState.DISABLED, reason=blocked))
            return None
        misfit = requirement_fault(candidate.requirements)
        if misfit is not None:
            return self._reject(info, PluginState.INCOMPATIBLE, misfit)
        try:
            plugin = candidate.plugin or load_target(candidate.target)
        except (Exception, SystemExit) as error:  # a module may also leave by sys.exit
            return self._reject(info, PluginState.FAILED, f"{type(error).__name__}: {error}", error)
        try:
            self._admit(info, plugin)
        except PluginError as error:
            misfit = api_fault(plugin)
            state = PluginState.FAILED if misfit is None else PluginState.INCOMPATIBLE
            return self._reject(info, state, error.asked, error)

    def isolate(self, error: ThunderError) -> None:
        """Leaves out from now on, with one warning, the installed plugin whose hook broke a rule.

        Raises the error where the program registered the plugin itself, or `THUNDER_PLUGIN_STRICT=1` is set.
        """
        with self._lock:
            info = self._plugins.get(str(error.facts.get("plugin")))
            if info is not None and info.state is PluginState.FAILED:
                return  # another thread met the fault first
            installed = info is not None and info.state in (PluginState.LOADED, PluginState.UNAVAILABLE)
            if info is None or not installed or Policy.from_environment(self._environment).strict:
                raise error
            self.unregister(info.name)
            self._reject(info, PluginState.FAILED, error.asked, error, what="broke a rule")

    def _reject(
        self,
        info: PluginInfo,
        state: PluginState,
        reason: str,
        cause: BaseException | None = None,
        what: str = "could not be loaded",
    ) -> None:
        self._enter(replace(info, state=state, reason=reason, declares=Declarations()))
        remedy = f"Reinstall or upgrade {info.package}, or" if info.package else "Correct it, or"
        text = f"thunder plugin {info.name!r} (from {info.source}) {what} and is disabled: {reason}"
        silence = (
            f"silence this with THUNDER_DISABLE_PLUGINS={info.name}; THUNDER_PLUGIN_STRICT=1 raises instead."
        )
        hint = f"{remedy} {silence}"
        if Policy.from_environment(self._environment).strict:
            raise PluginError(text, hint=hint, facts={"plugin": info.name, "reason": reason}).of(
                info.source
            ) from cause
        warnings.warn(f"{text}\n{hint}", PluginWarning, stacklevel=2)

    def _enter(self, info: PluginInfo) -> None:
        self._plugins[info.name] = info
        self._changed()

    def _changed(self) -> None:
        self._implementations.clear()
        self.generation = object()

    # -- registering

    def register(self, plugin: object, name: str) -> None:
        """Adds a plugin of the program. Raises PluginError, and adds nothing, if it breaks a rule of the
        hooks.
        """
        with self._lock:
            self.load()
            if name in self._plugins:
                raise RegistrationError(
                    f"the plugin name {name!r} is taken by {self._plugins[name].source}",
                    hint="Choose another.",
                )
            self._admit(PluginInfo(name=name, state=PluginState.RUNTIME, module=_module_of(plugin)), plugin)

    def unregister(self, name: str) -> None:
        """Removes a plugin; its executors can no longer be found by name."""
        with self._lock:
            info = self._plugins.pop(name)
            if self._pluggy.has_plugin(name):
                self._pluggy.unregister(name=name)
            for spec in info.declares.executors:
                self._resolved.pop(spec.name, None)
            self._changed()

    def withdraw(self, executor: str) -> None:
        """Takes an executor away from the plugin that declares it; the rest of the plugin stays."""
        with self._lock:
            info = self.owner_of(executor)
            if info is None:
                return
            kept = tuple(
                s for s in info.declares.executors if executor != s.name and executor not in s.aliases
            )
            gone = [s.name for s in info.declares.executors if s not in kept]
            for name in gone:
                self._resolved.pop(name, None)
            self._enter(replace(info, declares=replace(info.declares, executors=kept)))

    @contextmanager
    def temporary(self, plugin: object, name: str) -> Iterator[None]:
        """Within the context, a plugin of the program is registered."""
        self.register(plugin, name)
        try:
            yield
        finally:
            if name in self._plugins:
                self.unregister(name)

    @contextmanager
    def disabled(self, *names: str) -> Iterator[None]:
        """Within the context, the plugins of these names are absent."""
        self.load()
        taken = [
            (self._plugins[name], self._pluggy.get_plugin(name)) for name in names if name in self._plugins
        ]
        for info, _ in taken:
            self.unregister(info.name)
            self._enter(replace(info, state=PluginState.DISABLED, reason="disabled by the program"))
        try:
            yield
        finally:
            for info, plugin in taken:
                if plugin is not None:
                    del self._plugins[info.name]
                    self._admit(info, plugin)
                else:
                    self._enter(info)

    def _admit(self, info: PluginInfo, plugin: object) -> None:
        """Registers with pluggy, which calls `thunder_configure`, and collects declarations; all of it or
        nothing.
        """
        misfit = api_fault(plugin) or hook_fault(self._pluggy, plugin)
        if misfit is not None:
            raise PluginError(misfit, found={"plugin": info.name}).of(info.source)
        try:
            self._pluggy.register(plugin, name=info.name)
            self._pluggy.check_pending()
            declares = collect_declarations(lambda hook: self._call_one(plugin, hook))
            self._check_names(info.name, declares)
        except Exception as error:
            # A historic hook that raises leaves the plugin half registered.
            if self._pluggy.has_plugin(info.name):
                self._pluggy.unregister(name=info.name)
            if isinstance(error, PluginError):
                raise error.of(info.source) from error.__cause__
            fault = PluginError(f"{type(error).__name__}: {error}", found={"plugin": info.name})
            raise fault.of(info.source) from error
        usable = not declares.executors or not all(spec.missing for spec in declares.executors)
        state = info.state if usable else PluginState.UNAVAILABLE
        reason = (
            None if usable else f"needs {', '.join(declares.executors[0].missing)}, which is not installed"
        )
        self._enter(replace(info, state=state, reason=reason, declares=declares))

    def _check_names(self, plugin: str, declares: Declarations) -> None:
        for info in self._plugins.values():
            self._check_against(info, declares)
        names = [name for spec in declares.executors for name in (spec.name, *spec.aliases)]
        twice = {name for name in names if names.count(name) > 1}
        if twice:
            raise PluginError(f"plugin {plugin!r} declares executor {sorted(twice)[0]!r} twice")

    @staticmethod
    def _check_against(other: PluginInfo, declares: Declarations) -> None:
        theirs = {name for spec in other.declares.executors for name in (spec.name, *spec.aliases)}
        for spec in declares.executors:
            for name in (spec.name, *spec.aliases):
                if name in theirs:
                    raise PluginError(f"executor {name!r} is already provided by plugin {other.name!r}")
        transforms = {spec.name for spec in other.declares.transforms}
        for transform in declares.transforms:
            if transform.name in transforms:
                raise PluginError(
                    f"transform {transform.name!r} is already provided by plugin {other.name!r}"
                )
        options = {option.name: option for option in other.declares.options}
        for option in declares.options:
            if options.get(option.name, option) != option:
                raise PluginError(f"option {option.name!r} is declared otherwise by plugin {other.name!r}")

    # -- reading

    def list_plugins(self) -> tuple[PluginInfo, ...]:
        """Every plugin that was found, loaded or not, in the order of loading."""
        self.load()
        return tuple(self._plugins.values())

    def loaded(self) -> tuple[PluginInfo, ...]:
        """The plugins whose hooks are called, in the order of (rank, name)."""
        self.load()
        found = [info for info in self._plugins.values() if info.is_loaded]
        return tuple(sorted(found, key=lambda info: (info.declares.rank, info.name)))

    def executor_specs(self) -> tuple[ExecutorSpec, ...]:
        """What loaded plugins declare, in the order of (rank, name)."""
        specs = [spec for info in self.loaded() for spec in info.declares.executors]
        return tuple(sorted(specs, key=lambda spec: (spec.rank, spec.name)))

    def owner_of(self, executor: str) -> PluginInfo | None:
        """The plugin that declares an executor of this name or alias, or None."""
        for info in self.loaded():
            for spec in info.declares.executors:
                if executor == spec.name or executor in spec.aliases:
                    return info
        return None

    def resolve(self, spec: ExecutorSpec) -> Executor | Unavailable:
        """The executor of a spec, imported at the first call, or why there is none."""
        with self._lock:
            found = self._resolved.get(spec.name)
            if found is None:
                found = self._resolved[spec.name] = resolve_executor(spec)
                owner = self.owner_of(spec.name)
                if isinstance(found, Executor) and owner is not None and owner.package is not None:
                    found.brought_by = owner.source
            return found

    def resolved(self, spec: ExecutorSpec) -> Executor | Unavailable | None:
        """What `resolve` has found already, or None if nobody has asked yet; imports nothing."""
        return self._resolved.get(spec.name)

    # -- calling

    def _call_one(self, plugin: object, hook: str) -> Any:
        """The result of one plugin's implementation of a hook without arguments; None if it has none."""
        for implementation in getattr(self._pluggy.hook, hook).get_hookimpls():
            if implementation.plugin is plugin:
                return implementation.function()
        return None

    def implementations(self, hook: str) -> tuple[pluggy.HookImpl, ...]:
        """The implementations of a hook in the order of (rank, name) of their plugins; remembered between
        changes.
        """
        self.load()
        found = self._implementations.get(hook)
        if found is None:
            by_plugin = {impl.plugin_name: impl for impl in getattr(self._pluggy.hook, hook).get_hookimpls()}
            found = tuple(by_plugin[info.name] for info in self.loaded() if info.name in by_plugin)
            self._implementations[hook] = found
        return found

    def call(self, hook: str, **arguments: Any) -> Iterator[tuple[str, Any]]:
        """(plugin's name, result) of every implementation of a hook, in the order of (rank, name).

        An exception in one is a PluginError that names the plugin.
        """
        for implementation in self.implementations(hook):
            name = implementation.plugin_name
            try:
                result = implementation.function(
                    *(arguments[argument] for argument in implementation.argnames)
                )
                # a generator runs here, where its faults are told as the plugin's
                if isinstance(result, Iterator):
                    result = list(result)
            except Exception as error:
                raise self.fault(
                    name, f"hook {hook} of plugin {name!r} raised {type(error).__name__}: {error}", hook
                ) from error
            yield name, result

    def fault(self, plugin: str, asked: str, hook: str, hint: str | None = None) -> PluginError:
        """The error for what a plugin's hook did or returned; `hint` tells its author more."""
        way_out = f"THUNDER_DISABLE_PLUGINS={plugin} leaves the plugin out."
        return PluginError(
            asked,
            facts={"plugin": plugin, "hook": hook},
            hint=way_out if hint is None else f"{hint} {way_out}",
        ).of(self.source_of(plugin))

    def source_of(self, plugin: str) -> str:
        """Where a plugin comes from, in words."""
        return self._plugins[plugin].source


def _module_of(plugin: object) -> str | None:
    """The module of a plugin that the program registers."""
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    return plugin.made_in if isinstance(plugin, AdHocPlugin) else type(plugin).__module__


_manager = PluginManager()


def get_manager() -> PluginManager:
    """The manager of this process."""
    return _manager
