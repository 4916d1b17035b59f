"""The settings of a compile and the identity of what is compiled, as texts: the key of kept programs."""

from __future__ import annotations

import json
import sys
from typing import Any

from thunder.core.entries import (
    CACHE_OPTIONS,
    CompileData,
    PluginInfo,
    PluginState,
    TraceRequest,
    runs_from_file,
)
from thunder.extend import get_executor
from thunder.plugins import get_manager
from thunder_store.descriptions import description
from thunder_store.digests import class_digest, digest_of
from thunder_store.reasons import NotKept
from thunder_store.transformed import overrides_form, transform_form

__all__ = ["given_settings", "key_of", "settings_of"]

#: options that say where programs are kept, or how a compile shows itself
_PLACES = frozenset(
    {"program_cache", "artefact", "compile_progress", "compile_workers", "program", "check_program"}
)


def key_of(request: TraceRequest, data: CompileData) -> str:
    """Return the key of the programs of a call; raise NotKept for settings that name objects."""
    return digest_of(json.dumps(settings_of(request, data), sort_keys=True))


def settings_of(request: TraceRequest, data: CompileData) -> dict[str, Any]:
    """Return what a program depends on beside facts and environment, as JSON."""
    _refuse(request, data)
    options = data.compile_options
    return {
        "callable": _callable_text(request.fn),
        "language": data.langctx.name,
        "executors": [_executor_text(executor) for executor in data.executors_list],
        "transforms": [transform_form(transform) for transform in data.transforms],
        "overrides": overrides_form(request.overrides),
        "cache": data.cache_option.name,
        "sharp edges": data.sharp_edges.name,
        "disables grad": request.disable_grad,
        "disjoint": request.inputs_are_disjoint,
        "answers": request.answers is not None,
        "options": {
            name: _plain(name, options.value(name)) for name in sorted(options) if name not in _PLACES
        },
        "debug": [
            [name, repr(getattr(data.debug_options, name))] for name in sorted(data.debug_options._declared)
        ],
    }


def given_settings(data: CompileData) -> dict[str, Any]:
    """Return the arguments of `thunder.jit` that give these settings."""
    options = data.compile_options
    given = {name: _plain(name, options.value(name)) for name in options.given if name not in _PLACES}
    return {
        "executors": [executor.name for executor in data.executors_list],
        "cache": data.cache_option.value,
        "sharp_edges": data.sharp_edges.value,
        "disable_torch_autograd": data.disable_torch_autograd_support,
        **given,
    }


def _refuse(request: TraceRequest, data: CompileData) -> None:
    _refuse_plugins()
    if runs_from_file():
        raise NotKept("replaced", "set_execution_callback_file")
    if data.lookasides or data.require or data.compile_options.value("opaque"):
        raise NotKept("options", "lookasides=, require= or opaque=")
    if data.debug_options.record_interpreter_history:
        raise NotKept("options", "record_interpreter_history")
    if request.trusted != "nothing" or data.cache_option in (
        CACHE_OPTIONS.SAME_INPUT,
        CACHE_OPTIONS.NO_CACHING,
    ):
        raise NotKept("promises", "frozen=True, or cache='same input' or 'no caching'")


#: hooks whose implementations decide how programs are read or compiled
_DECIDING = (
    *("thunder_operators", "thunder_checkers", "thunder_execution_transforms", "thunder_grad_transforms"),
    *("thunder_costs", "thunder_lookasides", "thunder_session_rules", "thunder_pipeline"),
)


def _refuse_plugins() -> None:
    """Raise NotKept for a plugin that decides how programs are compiled, and whose code no file shows."""
    manager = get_manager()
    inline = {i.name for i in manager.loaded() if i.state is PluginState.RUNTIME and not _is_module(i)}
    for hook in _DECIDING if inline else ():
        for implementation in manager.implementations(hook):
            if implementation.plugin_name in inline:
                raise NotKept("options", f"{hook} of the plugin {implementation.plugin_name}")


def _callable_text(fn: Any) -> str:
    try:
        return description(fn)
    except NotKept:
        kind = type(fn)
        return f"{kind.__module__}:{kind.__qualname__} {class_digest(kind)}"


def _executor_text(executor: Any) -> str:
    """Return the name of an executor that a package, or thunder, has; raise NotKept for another one."""
    owner = get_manager().owner_of(executor.name)
    if owner is None or (owner.state is PluginState.RUNTIME and not _is_module(owner)):
        raise NotKept("options", f"the executor {executor.name} is made in the program")
    if get_executor(executor.name) is not executor:
        raise NotKept("options", f"the executor {executor.name} is made in the program")
    return f"{executor.name} {owner.name} {executor.version}"


def _is_module(info: PluginInfo) -> bool:
    """Return whether a plugin that the program has registered is a module, whose file says what it is."""
    module = sys.modules.get(info.module or "")
    return any(
        name.startswith("thunder_") and callable(v) for name, v in getattr(module, "__dict__", {}).items()
    )


def _plain(name: str, value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (tuple, list):
        return [_plain(name, v) for v in value]
    if type(value) is dict:
        return [[_plain(name, k), _plain(name, v)] for k, v in value.items()]
    raise NotKept("options", f"{name} is an object")
