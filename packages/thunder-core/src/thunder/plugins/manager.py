"""The plugin manager: finds plugins, loads them, isolates faulty ones, calls their hooks.

Nothing is loaded before it is needed. Loading a plugin runs its module, which should import no large library;
the executors that it declares are imported one by one, when they are resolved.

A plugin that cannot be loaded is listed with the reason, one warning names it, and everything else works.
"""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType, ModuleType
from typing import Any, Protocol, TypeAlias

import pluggy

from thunder.base.errors import PluginError, PluginWarning, RegistrationError, ThunderError
from thunder.base.forks import renew_lock
from thunder.executor_base.executor import Executor
from thunder.plugins import hookspecs
from thunder.plugins.compatibility import api_misfit, package_misfit
from thunder.plugins.discovery import Candidate, installed_plugins
from thunder.plugins.hook_validation import arguments_fault, hook_fault, hooks_of, new_hooks
from thunder.plugins.inline_plugin import InlinePlugin
from thunder.plugins.load_policy import LoadPolicy
from thunder.plugins.markers import PROJECT
from thunder.plugins.name_conflicts import check_names
from thunder.plugins.planned_device import ASSUMED
from thunder.plugins.plugin_info import Declarations, PluginInfo, PluginState, collect_declarations
from thunder.plugins.specs import ExecutorSpec, Unavailable, load_target, resolve_executor

__all__ = ["Dependent", "NamesByPlugin", "PluginManager", "get_manager"]

#: returns the names of what plugins return to a hook, as pairs (plugin, name)
NamesByPlugin: TypeAlias = Callable[["PluginManager"], Iterable[tuple[str, str]]]


class Dependent(Protocol):
    """An object with results that depend on the plugins, such as a compiled function."""

    def plugins_changed(self) -> None:
        """Called after a change of plugins, perhaps in another thread."""


class PluginManager:
    """All plugins of a process. Programs use the manager that `get_manager` returns; tests make their own.

    Args:
        builtin: the executors that are part of core; each is a plugin of the executor's name.
        discover: returns the installed plugins.
        environment: has the variables of `thunder.plugins.load_policy`; read when plugins load.
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
        renew_lock(self, "_lock")
        self._is_loaded = False
        #: how many of the candidates were loaded or refused, for a load that was interrupted
        self._tried = 0
        self._plugins: dict[str, PluginInfo] = {}
        self._resolved: dict[str, Executor | Unavailable] = {}
        self._implementations: dict[str, tuple[pluggy.HookImpl, ...]] = {}
        self._pluggy = pluggy.PluginManager(PROJECT)
        self._pluggy.add_hookspecs(hookspecs)
        self._named: dict[str, NamesByPlugin] = {}
        # Historic: pluggy repeats the call for plugins that are registered later.
        self._pluggy.hook.thunder_configure.call_historic(kwargs={"manager": self})
        #: a new object after each change: what was computed from plugins is valid while it is the same
        self.generation: object = object()
        self._dependents: weakref.WeakSet[Dependent] = weakref.WeakSet()

    # -- loading

    def set_builtin(self, executors: Iterable[ExecutorSpec], modules: Mapping[str, str]) -> None:
        """Set the plugins that are part of core: one for each executor, and modules by plugin name."""
        assert not self._is_loaded, "the built-in plugins are named before any plugin is loaded"
        named = [Candidate.of_core(name, module) for name, module in modules.items()]
        self._builtin = (*map(Candidate.of_builtin, executors), *named)

    def load(self) -> None:
        """Load all plugins, once.

        Raises PluginError for the first that cannot be loaded, if `THUNDER_PLUGIN_STRICT=1` is set.
        """
        if self._is_loaded:
            return
        with self._lock:
            if self._is_loaded:
                return
            self._is_loaded = True  # before the loop: a plugin may look up executors while it is imported
            policy = LoadPolicy.from_environment(self._environment)
            try:
                candidates = (*self._builtin, *(self._discover() if policy.autoload else ()))
                for candidate in candidates[self._tried :]:
                    self._load_one(candidate, policy)
                    self._tried += 1
            except KeyboardInterrupt:
                self._is_loaded = False  # the next call loads the others
                raise

    def _load_one(self, candidate: Candidate, policy: LoadPolicy) -> None:
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
        misfit = package_misfit(candidate.distribution or candidate.name, candidate.requirements)
        if misfit is not None:
            return self._reject(info, PluginState.INCOMPATIBLE, misfit.reason, remedy=misfit.remedy)
        try:
            plugin = candidate.plugin or load_target(candidate.target)
        except (Exception, SystemExit) as error:  # a module may also call sys.exit
            return self._reject(info, PluginState.FAILED, f"{type(error).__name__}: {error}", error)
        try:
            self._admit(info, plugin)
        except PluginError as error:
            misfit = api_misfit(plugin, candidate.distribution)
            state = PluginState.FAILED if misfit is None else PluginState.INCOMPATIBLE
            remedy = None if misfit is None else misfit.remedy
            return self._reject(info, state, error.asked, error, remedy=remedy)

    def isolate(self, error: ThunderError) -> None:
        """Disable the installed plugin whose hook broke its contract, with one warning.

        Raises the error if the program registered the plugin itself, or `THUNDER_PLUGIN_STRICT=1` is set.
        """
        with self._lock:
            info = self._plugins.get(str(error.facts.get("plugin")))
            if info is not None and info.state is PluginState.FAILED:
                return  # another thread disabled it first
            installed = info is not None and info.state in (PluginState.LOADED, PluginState.UNAVAILABLE)
            if info is None or not installed or LoadPolicy.from_environment(self._environment).strict:
                raise error
            self.unregister(info.name)
            self._reject(info, PluginState.FAILED, error.asked, error, what="broke the contract of a hook")

    def _reject(
        self,
        info: PluginInfo,
        state: PluginState,
        reason: str,
        cause: BaseException | None = None,
        what: str = "could not be loaded",
        remedy: str | None = None,
    ) -> None:
        self._enter(replace(info, state=state, reason=reason, declares=Declarations()))
        if remedy is None:
            remedy = f"Reinstall or upgrade {info.package}" if info.package else "Correct it"
        text = f"thunder plugin {info.name!r} (from {info.source}) {what} and is disabled: {reason}"
        silence = (
            f"silence this with THUNDER_DISABLE_PLUGINS={info.name}; THUNDER_PLUGIN_STRICT=1 raises instead."
        )
        hint = f"{remedy}, or {silence}"
        if LoadPolicy.from_environment(self._environment).strict:
            raise PluginError(text, hint=hint, facts={"plugin": info.name, "reason": reason}).blame(
                info.source
            ) from cause
        warnings.warn(f"{text}\n{hint}", PluginWarning, stacklevel=2)

    def _enter(self, info: PluginInfo) -> None:
        self._plugins[info.name] = info
        self._changed()

    def _changed(self) -> None:
        with self._lock:
            self._implementations.clear()
            self.generation = object()
            for dependent in tuple(self._dependents):
                dependent.plugins_changed()

    def notify(self, dependent: Dependent) -> None:
        """Call `plugins_changed` of an object after each change, as long as the object exists."""
        with self._lock:
            self._dependents.add(dependent)

    # -- registering

    def register(self, plugin: object, name: str) -> None:
        """Register a plugin of the program.

        Raises PluginError, and registers nothing, if the plugin breaks the contract of a hook;
        RegistrationError if the name is taken.
        """
        with self._lock:
            self.load()
            if name in self._plugins:
                raise RegistrationError(
                    f"the plugin name {name!r} is taken by {self._plugins[name].source}",
                    hint="Choose another.",
                )
            self._admit(PluginInfo(name=name, state=PluginState.RUNTIME, module=_module_of(plugin)), plugin)

    def add_hooks(
        self, specs: ModuleType | type, named: Mapping[str, NamesByPlugin] = MappingProxyType({})
    ) -> None:
        """Add the hooks that a plugin defines for others; called in `thunder_configure`.

        They are the functions of a module, or the static ones of a class, with the mark `hookspec`. They are
        checked and called as core's hooks are, and a program that was compiled with other implementations is
        compiled again. An implementation that is marked `hookimpl(optionalhook=True)` needs no plugin that
        defines its hook. `named` has, for a kind of what the hooks return, the function by which
        `python -m thunder plugins` names it.

        Raises RegistrationError for a hook that is defined elsewhere. A plugin that was registered before,
        and whose implementation asks for other arguments, is disabled.
        """
        with self._lock:
            hooks = new_hooks(self._pluggy, specs)
            for name, offered in hooks.items():
                for implementation in self._hookimpls(name):
                    fault = arguments_fault(name, implementation.function, offered)
                    if fault is not None:
                        self.isolate(self.fault(implementation.plugin_name, fault, name))
            if hooks:  # else the plugin is registered again
                self._pluggy.add_hookspecs(specs)
                self._named.update(named)
                self._changed()

    def unregister(self, name: str) -> None:
        """Remove a plugin; its executors can no longer be found by name."""
        with self._lock:
            info = self._plugins.pop(name)
            if self._pluggy.has_plugin(name):
                self._pluggy.unregister(name=name)
            for spec in info.declares.executors:
                self._resolved.pop(spec.name, None)
            self._changed()

    def withdraw(self, executor: str) -> None:
        """Remove an executor from the plugin that declares it; the rest of the plugin stays."""
        with self._lock:
            info = self.owner_of(executor)
            if info is None:
                return
            remaining = tuple(
                s for s in info.declares.executors if executor != s.name and executor not in s.aliases
            )
            for spec in set(info.declares.executors) - set(remaining):
                self._resolved.pop(spec.name, None)
            self._enter(replace(info, declares=replace(info.declares, executors=remaining)))

    @contextmanager
    def temporary(self, plugin: object, name: str) -> Iterator[None]:
        """Register a plugin of the program within a context."""
        self.register(plugin, name)
        try:
            yield
        finally:
            if name in self._plugins:
                self.unregister(name)

    @contextmanager
    def disabled(self, *names: str) -> Iterator[None]:
        """Disable the plugins of these names within a context."""
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
        """Register with pluggy, which calls `thunder_configure`, and collect declarations; all or nothing."""
        misfit = api_misfit(plugin)
        fault = misfit.reason if misfit is not None else hook_fault(self._pluggy, plugin)
        if fault is not None:
            raise PluginError(fault, found={"plugin": info.name}).blame(info.source)
        try:
            self._pluggy.register(plugin, name=info.name)
            self._pluggy.check_pending()
            declares = collect_declarations(lambda hook: self._call_one(plugin, hook))
            check_names(info.name, declares, self._plugins.values())
        except BaseException as error:
            # A historic hook that raises leaves the plugin half registered.
            if self._pluggy.has_plugin(info.name):
                self._pluggy.unregister(name=info.name)
            if not isinstance(error, Exception):
                raise
            if isinstance(error, PluginError):
                raise error.blame(info.source) from error.__cause__
            raised = PluginError(f"{type(error).__name__}: {error}", found={"plugin": info.name})
            raise raised.blame(info.source) from error
        usable = not declares.executors or not all(spec.missing for spec in declares.executors)
        state = info.state if usable else PluginState.UNAVAILABLE
        reason = (
            None if usable else f"needs {', '.join(declares.executors[0].missing)}, which is not installed"
        )
        self._enter(replace(info, state=state, reason=reason, declares=declares))

    # -- reading

    def list_plugins(self) -> tuple[PluginInfo, ...]:
        """Return every plugin, loaded or not, in the order of loading."""
        self.load()
        return tuple(self._plugins.values())

    def loaded(self) -> tuple[PluginInfo, ...]:
        """Return the plugins whose hooks are called, in the order of (rank, name)."""
        self.load()
        plugins = [info for info in self._plugins.values() if info.is_loaded]
        return tuple(sorted(plugins, key=lambda info: (info.declares.rank, info.name)))

    def executor_specs(self) -> tuple[ExecutorSpec, ...]:
        """Return the executors that loaded plugins declare, in the order of (rank, name)."""
        specs = [spec for info in self.loaded() for spec in info.declares.executors]
        return tuple(sorted(specs, key=lambda spec: (spec.rank, spec.name)))

    def owner_of(self, executor: str) -> PluginInfo | None:
        """Return the plugin that declares an executor of this name or alias, or None."""
        for info in self.loaded():
            for spec in info.declares.executors:
                if executor == spec.name or executor in spec.aliases:
                    return info
        return None

    def resolve(self, spec: ExecutorSpec) -> Executor | Unavailable:
        """Return the executor of a spec, imported at the first call, or why there is none.

        An answer that depends on devices is not kept: a plan may assume one that is not here.
        """
        with self._lock:
            known = self._resolved.get(spec.name)
            depends = isinstance(known, Unavailable) and known.lacks_device
            if known is not None and not depends:
                return known
            executor = resolve_executor(spec)
            owner = self.owner_of(spec.name)
            if isinstance(executor, Executor) and owner is not None and owner.package is not None:
                executor.provided_by = owner.source
            if not depends and ASSUMED.get() is None:
                self._resolved[spec.name] = executor
            return executor

    def resolved(self, spec: ExecutorSpec) -> Executor | Unavailable | None:
        """Return what `resolve` returned for a spec, or None if it was not called yet; import nothing."""
        return self._resolved.get(spec.name)

    # -- calling

    def _call_one(self, plugin: object, hook: str) -> Any:
        """Return the result of one plugin's implementation of a hook without arguments, or None."""
        for implementation in self._hookimpls(hook):
            if implementation.plugin is plugin:
                return implementation.function()
        return None

    def implementations(self, hook: str) -> tuple[pluggy.HookImpl, ...]:
        """Return the implementations of a hook, in the order of (rank, name) of their plugins.

        A hook that no plugin defines has none.
        """
        self.load()
        implementations = self._implementations.get(hook)  # sorted once between two changes
        if implementations is None:
            defined = self._hookimpls(hook) if hook in hooks_of(self._pluggy) else ()
            by_plugin = {impl.plugin_name: impl for impl in defined}
            implementations = tuple(by_plugin[info.name] for info in self.loaded() if info.name in by_plugin)
            self._implementations[hook] = implementations
        return implementations

    def _hookimpls(self, hook: str) -> Sequence[pluggy.HookImpl]:
        caller = getattr(self._pluggy.hook, hook, None)
        return () if caller is None else caller.get_hookimpls()

    def hooks(self) -> Mapping[str, Sequence[str]]:
        """Return every hook with the arguments that it offers."""
        self.load()
        return hooks_of(self._pluggy)

    def added_hooks(self) -> tuple[str, ...]:
        """Return the hooks that plugins define, in the order of their names."""
        return tuple(sorted(hook for hook in self.hooks() if not hasattr(hookspecs, hook)))

    def named(self) -> Mapping[str, NamesByPlugin]:
        """Return kind → the function that names what plugins return to the hooks of packages."""
        self.load()
        return self._named

    def call(self, hook: str, **arguments: Any) -> Iterator[tuple[str, Any]]:
        """Call each implementation of a hook, in the order of (rank, name); yield (plugin's name, result).

        Raises PluginError, which names the plugin, for an exception in an implementation.
        """
        for implementation in self.implementations(hook):
            yield implementation.plugin_name, self.call_one(implementation, hook, **arguments)

    def call_one(self, implementation: pluggy.HookImpl, hook: str, **arguments: Any) -> Any:
        """Call one implementation of a hook and return its result; raise PluginError if it raises."""
        name = implementation.plugin_name
        try:
            result = implementation.function(*(arguments[argument] for argument in implementation.argnames))
            # a generator runs here, where a fault in it is the plugin's
            return list(result) if isinstance(result, Iterator) else result
        except Exception as error:
            text = f"hook {hook} of plugin {name!r} raised {type(error).__name__}: {error}"
            raise self.fault(name, text, hook) from error

    def fault(self, plugin: str, asked: str, hook: str, hint: str | None = None) -> PluginError:
        """Return the error for what a plugin's hook did or returned; `hint` is for the plugin's author."""
        remedy = f"THUNDER_DISABLE_PLUGINS={plugin} leaves the plugin out."
        return PluginError(
            asked,
            facts={"plugin": plugin, "hook": hook},
            hint=remedy if hint is None else f"{hint} {remedy}",
        ).blame(self.source_of(plugin))

    def source_of(self, plugin: str) -> str:
        """Return the package and module of a plugin, as text for errors."""
        return self._plugins[plugin].source


def _module_of(plugin: object) -> str | None:
    """Return the module of a plugin that the program registers."""
    if isinstance(plugin, ModuleType):
        return plugin.__name__
    return plugin.defined_in if isinstance(plugin, InlinePlugin) else type(plugin).__module__


_manager = PluginManager()


def get_manager() -> PluginManager:
    """Return the manager of this process."""
    return _manager
