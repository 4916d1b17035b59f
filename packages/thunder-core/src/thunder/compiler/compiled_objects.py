"""Construction of compiled objects from settings, also by copying and unpickling."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, ThunderError
from thunder.base.langctx import LanguageContext, resolve_language
from thunder.base.options import resolve_options
from thunder.compiler.compile_logs import configure_logs
from thunder.compiler.dispatch import Dispatcher
from thunder.compiler.stats import CompileData, CompileStats
from thunder.executor_base.executor import Executor
from thunder.extend import get_executor
from thunder.plugins.contributions import declared_options
from thunder.plugins.manager import get_manager
from thunder.wrappers.compiled_function import CompiledFunction
from thunder.wrappers.module_state import ModuleState
from thunder.wrappers.overrides import Overrides
from thunder.wrappers.thunder_module import wrapped

_Reduced = tuple[Callable[..., Any], tuple[Any, ...]]


def compiled_object(
    data: CompileData, overrides: Overrides | None = None, stats: CompileStats | None = None
) -> Any:
    """Return the compiled object: for a module a module, else a function."""
    configure_logs()
    if isinstance(data.fn, torch.nn.Module):
        overrides = overrides or Overrides(data.fn)
        dispatcher = Dispatcher(data, overrides)
        return wrapped(ModuleState(data.fn, dispatcher, overrides, data.transforms, Settings(data)))
    dispatcher = Dispatcher(data, overrides, stats)
    return CompiledFunction(data.fn, dispatcher.__call__, dispatcher, Settings(data))


class Settings:
    """The settings of a compile, with which other callables can be compiled."""

    def __init__(self, data: CompileData) -> None:
        self._data = data

    def make(self, fn: Callable[..., Any], overrides: Overrides | None = None) -> Any:
        """Return a compiled object of another callable, with an empty cache."""
        return compiled_object(dataclasses.replace(self._data, fn=fn), overrides)

    def without_hooks(self, forward: Callable[..., Any], overrides: Overrides, stats: CompileStats) -> Any:
        """Return the compiled ``forward`` of a module; it shares the statistics of the module."""
        data = dataclasses.replace(self._data, fn=forward, is_module=False)
        return compiled_object(data, overrides, stats)

    def reduce(self, fn: Callable[..., Any], overrides: Overrides | None = None) -> _Reduced:
        """Return what pickle stores: the callable, the settings and the overriding tensors.

        Raises InvalidArgument, with its name, for a setting that cannot be pickled.
        """
        tensors = None
        if overrides is not None:
            tensors = (
                *(overrides.tensors, overrides.originals, overrides.own_form, overrides.fixed_dtypes),
                overrides.forms,
            )
        return _unpickled, (fn, _as_stored(self._data), tensors)


def _unpickled(
    fn: Callable[..., Any],
    stored: Mapping[str, Any],
    tensors: tuple[dict[str, Any], dict[str, Any], set[str], set[str], dict[str, Any]] | None,
) -> Any:
    """Return the compiled object that pickle stored, with an empty cache."""
    if isinstance(fn, CompiledFunction):  # pickle reads ``m.forward``, which is compiled
        return fn
    overrides = None
    if tensors is not None:
        overrides = Overrides(fn)  # type: ignore[arg-type]
        overrides.tensors.update(tensors[0])
        overrides.originals.update(tensors[1])
        overrides.own_form.update(tensors[2])
        overrides.fixed_dtypes.update(tensors[3])
        overrides.forms.update(tensors[4])
    settings = {
        **stored,
        "langctx": resolve_language(stored["langctx"]),
        "executors_list": tuple(map(get_executor, stored["executors_list"])),
        "compile_options": resolve_options(stored["compile_options"], declared_options(get_manager())),
    }
    return compiled_object(CompileData(fn=fn, **settings), overrides)


def _as_stored(data: CompileData) -> dict[str, Any]:
    """Return the settings as they are pickled: languages and executors by name."""
    settings = {field.name: getattr(data, field.name) for field in dataclasses.fields(data)}
    del settings["fn"]
    options = data.compile_options
    for name in options.given:
        _check_pickles(name, options.value(name))
    for name in ("transforms", "debug_options", "require", "lookasides"):
        _check_pickles(name, settings[name])
    return {
        **settings,
        "langctx": _language_name(data.langctx),
        "executors_list": tuple(map(_executor_name, data.executors_list)),
        "compile_options": {name: options.value(name) for name in options.given},
    }


def _check_pickles(name: str, value: object) -> None:
    try:
        pickle.dumps(value)
    except (pickle.PicklingError, TypeError, AttributeError) as error:
        raise InvalidArgument(
            f"the compiled object has {name}={value!r}, which cannot be pickled",
            found={"error": f"{type(error).__name__}: {error}"},
            hint="Pickle the function or the module's state_dict(), and call thunder.jit where it is loaded.",
        ) from error


def _language_name(language: LanguageContext) -> str:
    return _checked_name("langctx", language, resolve_language)


def _executor_name(executor: Executor) -> str:
    return _checked_name("executors", executor, get_executor)


def _checked_name(setting: str, value: Any, find: Callable[[str], object]) -> str:
    """Return the name under which a language or an executor is registered."""
    name: str = value.name
    try:
        if find(name) is value:
            return name
    except ThunderError:
        pass
    raise InvalidArgument(
        f"the compiled object cannot be pickled: {setting} has {name!r}, which is not registered",
        hint=f"Register it where it is defined, so that {name!r} is found where the object is loaded.",
    )
