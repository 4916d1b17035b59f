"""The merged contributions of all plugins: operators, options, transforms, devices, stages, cache state."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pluggy import HookImpl

from thunder.base.errors import PluginError, PluginWarning, RegistrationError, ThunderError, did_you_mean
from thunder.base.langctx import TORCH
from thunder.base.options import CORE_OPTIONS, Option
from thunder.base.public_names import Alias, NamesOfModules, Replaced
from thunder.executor_base.executor import Executor, ImplInfo
from thunder.executor_base.implementation_hints import check_rules
from thunder.executor_base.operator_ids import operator_id
from thunder.ir.symbol import Symbol
from thunder.ops.operator import Operator, register, row_of, symbol_of
from thunder.ops.package_functions import checked_meta, checked_printer
from thunder.plugins.generation_cache import PerGeneration
from thunder.plugins.manager import NamesByPlugin, PluginManager
from thunder.plugins.specs import CompileEvent, DeviceProfile, Lookaside, load_target

__all__ = [
    "cache_state",
    "commands",
    "configure_pipeline",
    "contribute",
    "declared_options",
    "device_profiles",
    "is_hashable",
    "isolated",
    "load_transform",
    "lookasides",
    "mesh_planner",
    "names_by_plugin",
    "names_of_modules",
    "notify_compiled",
    "program_stores",
    "recipes",
    "transform_names",
]

T = TypeVar("T")

# Hook → the field of ImplInfo that it fills.
_FIELD_OF_HOOK: Mapping[str, str] = {
    "thunder_checkers": "checker",
    "thunder_execution_transforms": "execution_transform",
    "thunder_grad_transforms": "grad_transform",
    "thunder_costs": "cost",
}


def isolated(manager: PluginManager, collect: Callable[[], T]) -> T:
    """Return `collect()`; an installed plugin whose hook breaks its contract is disabled and left out."""
    while True:
        try:
            return collect()
        except ThunderError as error:
            manager.isolate(error)


def per_generation(collect: Callable[[PluginManager], T]) -> PerGeneration[T]:
    """Return a function that collects what plugins contribute, again only after a change of plugins."""
    return PerGeneration(lambda manager: isolated(manager, lambda: collect(manager)))


def contribute(manager: PluginManager, executor: Executor) -> None:
    """Fill the hook layer of an executor's table, unless it is already of the manager's generation."""
    if executor.hooks_generation is manager.generation:
        return
    implementations = isolated(manager, lambda: _implementations(manager, executor))
    executor.set_hook_implementations(implementations, manager.generation)


def _implementations(manager: PluginManager, executor: Executor) -> dict[str, ImplInfo]:
    """Return operator id → what the plugins add to an executor's implementation of it."""
    infos: dict[str, ImplInfo] = {}
    for plugin, result in manager.call("thunder_operators", executor=executor):
        rows = list(_as_list(manager, plugin, "thunder_operators", result))
        for row in rows:  # all of them, before any is entered
            _check_row(manager, plugin, executor, row)
        for row in rows:
            symbol = _add_row(executor, row, manager.source_of(plugin))
            infos[symbol.id] = ImplInfo(symbol)
    for hook, field in _FIELD_OF_HOOK.items():
        plugin_of: dict[str, str] = {}
        for plugin, pairs in manager.call(hook, executor=executor):
            for operator, function in _pairs(manager, plugin, hook, pairs):
                if plugin_of.setdefault(operator, plugin) != plugin:
                    _warn_twice(executor, operator, field, plugin_of[operator], plugin)
                    plugin_of[operator] = plugin
                try:
                    check_rules(executor, operator, **{field: function})
                except RegistrationError as error:
                    text = f"{hook} of plugin {plugin!r}: {error.asked}"
                    raise manager.fault(plugin, text, hook, error.hint) from error
                value: dict[str, Any] = {field: function}
                infos[operator] = replace(infos.get(operator, ImplInfo()), **value)
    return infos


def _as_list(manager: PluginManager, plugin: str, hook: str, result: Any) -> Iterable[Any]:
    """Return a hook's result as an iterable; None is empty."""
    if result is not None and not isinstance(result, Iterable):
        text = f"{hook} of plugin {plugin!r} returned {result!r}, and should return a list"
        raise manager.fault(plugin, text, hook)
    return () if result is None else result


def list_of(
    expected: type[T], manager: PluginManager, plugin: str, hook: str, result: Any, hint: str | None = None
) -> Iterator[T]:
    """Yield the items of a hook's result; raise PluginError for one of another type."""
    for item in _as_list(manager, plugin, hook, result):
        if not isinstance(item, expected):
            text = f"{hook} of plugin {plugin!r} returned {item!r}, not a {expected.__name__}"
            raise manager.fault(plugin, text, hook, hint)
        yield item


def _as_mapping(manager: PluginManager, plugin: str, hook: str, result: Any) -> Mapping[str, Any]:
    if result is not None and not isinstance(result, Mapping):
        text = f"{hook} of plugin {plugin!r} returned {result!r}, and should return a mapping"
        raise manager.fault(plugin, text, hook)
    return result or {}


def _check_row(manager: PluginManager, plugin: str, executor: Executor, row: object) -> None:
    if not isinstance(row, Operator):
        text = f"thunder_operators of plugin {plugin!r} returned {row!r}, which is not an Operator"
        raise manager.fault(plugin, text, "thunder_operators")
    if row_of(row.id) is not None:
        # The hook was called before, perhaps for another executor object of the same name.
        owner = symbol_of(row.id).executor
        if not isinstance(owner, Executor) or owner.name != executor.name:
            raise RegistrationError(
                f"plugin {plugin!r} adds operator {row.id!r}, whose id is taken",
                found={"from": manager.source_of(plugin), "first": row_of(row.id), "second": row},
                facts={"plugin": plugin},
                hint="Use another id, such as '<executor>.<name>'.",
            )
    for function in row.torch:
        other = TORCH.resolve(function)
        if isinstance(other, Symbol) and other.id != row.id:
            raise RegistrationError(
                f"plugin {plugin!r} adds {row.id!r} for {function!r}, which is already {other.id!r}",
                found={"from": manager.source_of(plugin), "first": row_of(other.id), "second": row},
                facts={"plugin": plugin},
                hint="Implement the other operator: thunder_execution_transforms.",
            )


def _add_row(executor: Executor, row: Operator, origin: str) -> Symbol:
    runs = row.python_impl if row.python_impl is not None or row.eager_path is not None else row.eager
    definition = row.meta or row.decomposition
    if definition is not None:  # a row without one is refused where it is registered
        field = "meta" if row.meta is not None else "decomposition"
        checked = checked_meta(definition, row.id, lambda: origin, is_primitive=row.meta is not None)
        row = replace(row, **{field: checked})  # type: ignore[arg-type]
    printer = checked_printer(row.python_printer, row.id, lambda: origin)
    row = replace(row, python_impl=runs, python_printer=printer)
    symbol = register(row, replace=True, executor=executor, autocast_sources=row.torch)
    executor.add_operator(symbol)
    TORCH.functions.update(dict.fromkeys(row.torch, symbol))
    return symbol


def _pairs(
    manager: PluginManager, plugin: str, hook: str, result: Any
) -> Iterable[tuple[str, Callable[..., Any]]]:
    for pair in _as_list(manager, plugin, hook, result):
        if not (isinstance(pair, tuple) and len(pair) == 2 and callable(pair[1])):
            text = f"{hook} of plugin {plugin!r} returned {pair!r}, and not a pair (operator, function)"
            raise manager.fault(plugin, text, hook)
        try:
            operator = operator_id(pair[0])
        except RegistrationError as error:
            text = f"{hook} of plugin {plugin!r}: {error.asked}"
            raise manager.fault(plugin, text, hook, error.hint) from error
        yield operator, pair[1]


def _warn_twice(executor: Executor, operator: str, field: str, first: str, second: str) -> None:
    warnings.warn(
        f"plugins {first!r} and {second!r} both add a {field} for {operator} to executor {executor.name!r}; "
        f"that of {second!r} is used",
        PluginWarning,
        stacklevel=3,
    )


# --- declarations, and what is collected once between two changes of plugins


def declared_options(manager: PluginManager) -> Mapping[str, Option]:
    """Return core's options and those of all loaded plugins, by name."""
    options = dict(CORE_OPTIONS)
    for info in manager.loaded():
        for option in info.declares.options:
            options.setdefault(option.name, option)
    return options


def transform_names(manager: PluginManager) -> tuple[str, ...]:
    """Return the names of the transforms that loaded plugins declare, sorted."""
    return tuple(sorted(spec.name for info in manager.loaded() for spec in info.declares.transforms))


def load_transform(manager: PluginManager, name: str) -> Any:
    """Import and return the transform class of this name.

    Raises LookupError, with the nearest name, if no loaded plugin declares it.
    """
    for info in manager.loaded():
        for spec in info.declares.transforms:
            if spec.name == name:
                return load_target(spec.target)
    names = transform_names(manager)
    raise LookupError(
        f"no installed plugin provides the transform {name!r}.{did_you_mean(name, names)} "
        f"Registered: {', '.join(names) or 'none'}"
    )


def device_profiles(manager: PluginManager) -> Mapping[str, DeviceProfile]:
    """Return name → profile of all plugins; the first in (rank, name) order keeps a name."""
    return _profiles_of(manager)


def _device_profiles(manager: PluginManager) -> dict[str, DeviceProfile]:
    profiles: dict[str, DeviceProfile] = {}
    for plugin, result in manager.call("thunder_devices"):
        for profile in list_of(DeviceProfile, manager, plugin, "thunder_devices", result):
            profiles.setdefault(profile.name, profile)
    return profiles


_profiles_of = per_generation(_device_profiles)


def mesh_planner(manager: PluginManager) -> Callable[..., Any] | None:
    """Return the function of the first plugin that plans programs for a mesh of devices; None without one."""
    for plugin, result in manager.call("thunder_mesh_planner"):
        if result is None:
            continue
        if not callable(result):
            text = f"thunder_mesh_planner of plugin {plugin!r} returned {result!r}, which cannot be called"
            raise manager.fault(plugin, text, "thunder_mesh_planner")
        return result  # type: ignore[no-any-return]
    return None


def program_stores(manager: PluginManager) -> list[tuple[str, Any]]:
    """Return the plugins that keep programs, and their stores."""
    return [found for found in manager.call("thunder_program_store") if found[1] is not None]


def recipes(manager: PluginManager) -> Mapping[str, tuple[str, type[Any]]]:
    """Return the recipes of all plugins: name → the plugin's name, and the class of the recipe."""
    return _recipes_of(manager)


def _recipes(manager: PluginManager) -> dict[str, tuple[str, type[Any]]]:
    classes: dict[str, tuple[str, type[Any]]] = {}
    for plugin, result in manager.call("thunder_recipes"):
        for name, cls in _as_mapping(manager, plugin, "thunder_recipes", result).items():
            if not (isinstance(name, str) and isinstance(cls, type) and hasattr(cls, "setup_lookasides")):
                text = f"thunder_recipes of plugin {plugin!r} returned {name!r}: {cls!r}"
                hint = "It returns a mapping of names to classes of thunder.Recipe or thunder.Plugin."
                raise manager.fault(plugin, text, "thunder_recipes", hint)
            first, _ = classes.setdefault(name, (plugin, cls))
            if first != plugin:
                text = f"plugins {first!r} and {plugin!r} both provide the recipe {name!r}"
                raise manager.fault(plugin, text, "thunder_recipes")
    return classes


_recipes_of = per_generation(_recipes)


def commands(manager: PluginManager) -> list[Any]:
    """Return the modules of the commands that plugins add, in the order of the plugins."""
    hook = "thunder_commands"
    names = [n for plugin, r in manager.call(hook) for n in list_of(str, manager, plugin, hook, r)]
    return [load_target(name) for name in names]


def names_of_modules(manager: PluginManager) -> NamesOfModules:
    """Return the names that all plugins add to modules: module → name → what it is."""
    return _names_of(manager)


def _names(manager: PluginManager) -> NamesOfModules:
    hook = "thunder_names"
    added: dict[str, Mapping[str, Alias | Replaced] | Replaced] = {}
    for plugin, result in manager.call(hook):
        for path, names in _as_mapping(manager, plugin, hook, result).items():
            if isinstance(names, Replaced):
                values: Iterable[Any] = (names,)
            else:
                values = _as_mapping(manager, plugin, hook, names).values()
            if not all(isinstance(value, Alias | Replaced) for value in values):
                text = f"{hook} of plugin {plugin!r} returned {names!r} for {path!r}"
                hint = "A name is an Alias or a Replaced of thunder.plugins."
                raise manager.fault(plugin, text, hook, hint)
            first = added.setdefault(path, names)
            if first is names:
                continue
            if isinstance(first, Replaced) or isinstance(names, Replaced) or first.keys() & names.keys():
                text = f"{hook} of plugin {plugin!r} adds a name to {path!r} that another plugin adds"
                raise manager.fault(plugin, text, hook)
            added[path] = {**first, **names}
    return added


_names_of = per_generation(_names)


# --- at every compile, and at every call


def lookasides(manager: PluginManager) -> Iterator[tuple[HookImpl, Lookaside]]:
    """Yield the functions that plugins replace in traced programs, each with the plugin's implementation."""
    for implementation in manager.implementations("thunder_lookasides"):
        plugin = implementation.plugin_name
        result = manager.call_one(implementation, "thunder_lookasides")
        for lookaside in list_of(Lookaside, manager, plugin, "thunder_lookasides", result):
            yield implementation, lookaside


def names_by_plugin(manager: PluginManager) -> Mapping[str, Mapping[str, Sequence[str]]]:
    """Return for each plugin the names of what its hooks return, by their kinds."""
    names: dict[str, dict[str, list[str]]] = {}
    for kind, pairs in {**NAMED, **manager.named()}.items():
        for plugin, name in isolated(manager, lambda pairs=pairs: list(pairs(manager))):  # type: ignore[misc]
            names.setdefault(plugin, {}).setdefault(kind, []).append(name)
    return names


def _named_lookasides(manager: PluginManager) -> Iterator[tuple[str, str]]:
    for implementation, lookaside in lookasides(manager):
        fn = lookaside.fn
        yield implementation.plugin_name, f"{fn.__module__}.{getattr(fn, '__qualname__', fn)}"


def _named_recipes(manager: PluginManager) -> Iterator[tuple[str, str]]:
    for recipe, (plugin, _) in recipes(manager).items():
        yield plugin, recipe


def _named_session_rules(manager: PluginManager) -> Iterator[tuple[str, str]]:
    for plugin, rules in manager.call("thunder_session_rules"):
        for listed in list_of(object, manager, plugin, "thunder_session_rules", rules):
            yield plugin, getattr(listed, "name", repr(listed))


#: kind → what hooks of core return, as pairs (plugin, name)
NAMED: Mapping[str, NamesByPlugin] = {
    "lookasides": _named_lookasides,
    "recipes": _named_recipes,
    "session_rules": _named_session_rules,
}


def configure_pipeline(manager: PluginManager, pipeline: Any, options: Mapping[str, Any]) -> Iterator[str]:
    """Call `thunder_pipeline` of each plugin, which adds its stages; yield the name of each plugin."""
    for plugin, _ in manager.call("thunder_pipeline", pipeline=pipeline, options=options):
        yield plugin


def notify_compiled(manager: PluginManager, event: CompileEvent) -> None:
    """Call `thunder_compiled` of each plugin; an installed plugin that raises is disabled."""
    for implementation in manager.implementations("thunder_compiled"):
        try:
            manager.call_one(implementation, "thunder_compiled", event=event)
        except PluginError as error:
            manager.isolate(error)


def cache_state(manager: PluginManager, options: Mapping[str, Any]) -> Mapping[str, Hashable]:
    """Return name → value that the plugins add to the cache key of a call with these options."""
    if not manager.implementations("thunder_cache_state"):
        return {}
    return isolated(manager, lambda: _cache_state(manager, options))


def _cache_state(manager: PluginManager, options: Mapping[str, Any]) -> dict[str, Hashable]:
    state: dict[str, Hashable] = {}
    for plugin, result in manager.call("thunder_cache_state", options=options):
        for name, value in _as_mapping(manager, plugin, "thunder_cache_state", result).items():
            if name in state:
                text = f"plugin {plugin!r} adds the cache state {name!r}, which another plugin adds too"
                raise manager.fault(plugin, text, "thunder_cache_state")
            # A mutable value could change without a cache miss.
            if not is_hashable(value):
                text = (
                    f"plugin {plugin!r} returned the cache state {name!r} = {value!r}, which is not hashable"
                )
                raise manager.fault(plugin, text, "thunder_cache_state")
            state[name] = value
    return state


def is_hashable(value: object) -> bool:
    """Return whether a value can be guarded by equality: it does not change while it is the same object."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
