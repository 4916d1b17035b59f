"""What all plugins together contribute: to an executor's table, to options, transforms, devices, pipelines,
cache keys.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar

from thunder.base.errors import PluginWarning, RegistrationError, ThunderError, did_you_mean
from thunder.base.langctx import TORCH
from thunder.base.options import CORE_OPTIONS, Option
from thunder.executor_base.executor import Executor, ImplInfo
from thunder.executor_base.operator_executor import operator_id
from thunder.ir.symbol import Symbol
from thunder.ops.operator import Operator, register, row_of, symbol_of
from thunder.plugins.manager import PluginManager
from thunder.plugins.specs import DeviceProfile, load_target

__all__ = [
    "cache_state",
    "configure_pipeline",
    "contribute",
    "declared_options",
    "device_profiles",
    "is_hashable",
    "isolated",
    "load_transform",
    "recipes",
    "transform_names",
]

T = TypeVar("T")

# Hook → the field of an executor's record that it fills.
_RULES: Mapping[str, str] = {
    "thunder_checkers": "checker",
    "thunder_execution_transforms": "execution_transform",
    "thunder_grad_transforms": "grad_transform",
}


def isolated(manager: PluginManager, collect: Callable[[], T]) -> T:
    """What `collect` gives of the hooks; an installed plugin that breaks a rule in it is left out."""
    while True:
        try:
            return collect()
        except ThunderError as error:
            manager.isolate(error)


def contribute(manager: PluginManager, executor: Executor) -> None:
    """Fills the hook layer of an executor's table, unless it is of the manager's present generation."""
    if executor.hooks_from is manager.generation:
        return
    records = isolated(manager, lambda: _records(manager, executor))
    executor.set_hook_records(records, manager.generation)


def _records(manager: PluginManager, executor: Executor) -> dict[str, ImplInfo]:
    records: dict[str, ImplInfo] = {}
    for plugin, given in manager.call("thunder_operators", executor=executor):
        rows = list(_listed(manager, plugin, "thunder_operators", given))
        for row in rows:  # all of them, before any is entered
            _check_row(manager, plugin, executor, row)
        for row in rows:
            symbol = _add_row(executor, row)
            records[symbol.id] = ImplInfo(symbol)
    for hook, field in _RULES.items():
        givers: dict[str, str] = {}
        for plugin, pairs in manager.call(hook, executor=executor):
            for operator, function in _pairs(manager, plugin, hook, pairs):
                if givers.setdefault(operator, plugin) != plugin:
                    _warn_twice(executor, operator, field, givers[operator], plugin)
                    givers[operator] = plugin
                rule: dict[str, Any] = {field: function}
                records[operator] = replace(records.get(operator, ImplInfo()), **rule)
    return records


def _listed(manager: PluginManager, plugin: str, hook: str, found: Any) -> Iterable[Any]:
    """What a hook gave, as something to go through; None is nothing."""
    if found is not None and not isinstance(found, Iterable):
        text = f"{hook} of plugin {plugin!r} returned {found!r}, and should return a list"
        raise manager.fault(plugin, text, hook)
    return () if found is None else found


def _mapping(manager: PluginManager, plugin: str, hook: str, found: Any) -> Mapping[str, Any]:
    if found is not None and not isinstance(found, Mapping):
        text = f"{hook} of plugin {plugin!r} returned {found!r}, and should return a mapping"
        raise manager.fault(plugin, text, hook)
    return found or {}


def _check_row(manager: PluginManager, plugin: str, executor: Executor, row: object) -> None:
    if not isinstance(row, Operator):
        text = f"thunder_operators of plugin {plugin!r} returned {row!r}, which is no Operator"
        raise manager.fault(plugin, text, "thunder_operators")
    if row_of(row.id) is not None:
        # The hook was asked before, perhaps by another executor object of the same name.
        owner = symbol_of(row.id).executor
        if not isinstance(owner, Executor) or owner.name != executor.name:
            raise RegistrationError(
                f"plugin {plugin!r} brings operator {row.id!r}, whose id is taken",
                found={"from": manager.source_of(plugin), "first": row_of(row.id), "second": row},
                facts={"plugin": plugin},
                hint="Use another id, such as '<executor>.<name>'.",
            )
    for function in row.torch:
        other = TORCH.resolve(function)
        if isinstance(other, Symbol) and other.id != row.id:
            raise RegistrationError(
                f"plugin {plugin!r} brings {row.id!r} for {function!r}, which stands for {other.id!r}",
                found={"from": manager.source_of(plugin), "first": row_of(other.id), "second": row},
                facts={"plugin": plugin},
                hint="Implement the other operator: thunder_execution_transforms.",
            )


def _add_row(executor: Executor, row: Operator) -> Symbol:
    runs = row.python_impl if row.python_impl is not None or row.eager_path is not None else row.eager
    symbol = register(
        replace(row, python_impl=runs), replace=True, make_symbol=partial(Symbol, executor=executor)
    )
    executor.add_operator(symbol)
    TORCH.functions.update(dict.fromkeys(row.torch, symbol))
    return symbol


def _pairs(
    manager: PluginManager, plugin: str, hook: str, found: Any
) -> Iterable[tuple[str, Callable[..., Any]]]:
    for pair in _listed(manager, plugin, hook, found):
        if not (isinstance(pair, tuple) and len(pair) == 2 and callable(pair[1])):
            text = f"{hook} of plugin {plugin!r} returned {pair!r}, which is no pair (operator, function)"
            raise manager.fault(plugin, text, hook)
        try:
            operator = operator_id(pair[0])
        except RegistrationError as error:
            text = f"{hook} of plugin {plugin!r}: {error.asked}"
            raise manager.fault(plugin, text, hook, error.hint) from error
        yield operator, pair[1]


def _warn_twice(executor: Executor, operator: str, field: str, first: str, second: str) -> None:
    warnings.warn(
        f"plugins {first!r} and {second!r} both give executor {executor.name!r} a {field} for {operator}; "
        f"that of {second!r} is used",
        PluginWarning,
        stacklevel=3,
    )


# --- options, transforms, recipes, devices


def declared_options(manager: PluginManager) -> Mapping[str, Option]:
    """Core's options and those of all loaded plugins, by name."""
    found = dict(CORE_OPTIONS)
    for info in manager.loaded():
        for option in info.declares.options:
            found.setdefault(option.name, option)
    return found


def transform_names(manager: PluginManager) -> tuple[str, ...]:
    """The names of the transforms that loaded plugins declare, sorted."""
    return tuple(sorted(spec.name for info in manager.loaded() for spec in info.declares.transforms))


def load_transform(manager: PluginManager, name: str) -> Any:
    """The transform class of this name, imported now. Raises LookupError, with the nearest name, if there is
    none.
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


def recipes(manager: PluginManager) -> Mapping[str, type]:
    """Name → Recipe or Plugin class of all plugins; the first in (rank, name) order keeps a name."""
    return isolated(manager, lambda: _recipes(manager))


def _recipes(manager: PluginManager) -> dict[str, type]:
    found: dict[str, type] = {}
    for plugin, given in manager.call("thunder_recipes"):
        for name, cls in _mapping(manager, plugin, "thunder_recipes", given).items():
            found.setdefault(name, cls)
    return found


def device_profiles(manager: PluginManager) -> Mapping[str, DeviceProfile]:
    """Name → profile of all plugins; the first in (rank, name) order keeps a name."""
    return isolated(manager, lambda: _device_profiles(manager))


def _device_profiles(manager: PluginManager) -> dict[str, DeviceProfile]:
    found: dict[str, DeviceProfile] = {}
    for plugin, given in manager.call("thunder_devices"):
        for profile in _listed(manager, plugin, "thunder_devices", given):
            if not isinstance(profile, DeviceProfile):
                text = f"thunder_devices of plugin {plugin!r} returned {profile!r}, no DeviceProfile"
                raise manager.fault(plugin, text, "thunder_devices")
            found.setdefault(profile.name, profile)
    return found


# --- at every compile, and at every call


def configure_pipeline(manager: PluginManager, pipeline: Any, options: Mapping[str, Any]) -> None:
    """Lets every plugin insert its stages, in the order of (rank, name)."""
    for _ in manager.call("thunder_pipeline", pipeline=pipeline, options=options):
        pass


def cache_state(manager: PluginManager) -> Mapping[str, Hashable]:
    """What all plugins add to the cache key of a call now."""
    if not manager.implementations("thunder_cache_state"):
        return {}
    return isolated(manager, lambda: _cache_state(manager))


def _cache_state(manager: PluginManager) -> dict[str, Hashable]:
    state: dict[str, Hashable] = {}
    for plugin, given in manager.call("thunder_cache_state"):
        for name, value in _mapping(manager, plugin, "thunder_cache_state", given).items():
            if name in state:
                text = f"plugin {plugin!r} adds the cache state {name!r}, which another plugin adds too"
                raise manager.fault(plugin, text, "thunder_cache_state")
            # What can change while it stays the same object would be guarded by nothing.
            if not is_hashable(value):
                text = f"plugin {plugin!r} gives the cache state {name!r} as {value!r}, which is not hashable"
                raise manager.fault(plugin, text, "thunder_cache_state")
            state[name] = value
    return state


def is_hashable(value: object) -> bool:
    """Whether a value can be guarded by equality: it does not change while it stays the same object."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
