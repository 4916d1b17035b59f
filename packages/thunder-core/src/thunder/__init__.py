"""Thunder: a source-to-source compiler for PyTorch.

``thunder.jit(model)`` reads a program, writes it down as a printable, runnable trace, transforms the trace,
and gives every operation to the best installed executor.
"""

from __future__ import annotations

__path__ = __import__("pkgutil").extend_path(__path__, __name__)

import importlib
from typing import Any

from thunder.base.collector import collector_paused
from thunder.base.python_versions import python_refusal

if python_refusal():  # before a module that another version could break
    raise ImportError(python_refusal())
with collector_paused():  # each collection would look at all objects of torch
    for _module in ("core", "extend", "plugins", "recipes", "torch", "compiler.plan"):
        importlib.import_module(f"thunder.{_module}")

from thunder import core, extend, plugins, recipes
from thunder import torch as torch
from thunder.__about__ import __version__
from thunder.base import devices, dtypes, errors
from thunder.base.dtypes import *  # noqa: F403
from thunder.base.errors import *  # noqa: F403
from thunder.base.langctx import LanguageContext
from thunder.base.opaque_marks import opaque
from thunder.base.options import CACHE_OPTIONS, SHARP_EDGES_OPTIONS, DebugOptions
from thunder.base.public_names import declare_names
from thunder.base.size_wishes import mark_dynamic
from thunder.compiler.function_trace import trace
from thunder.compiler.functional_transforms import grad, jvp, value_and_grad, vjp, vmap
from thunder.compiler.inspection import (
    cache_hits,
    cache_misses,
    cache_option,
    compile_data,
    compile_stats,
    explain,
    last_backward_traces,
    last_compile_options,
    last_epilogue_traces,
    last_interpreted_instructions,
    last_interpreter_log,
    last_prologue_traces,
    last_recompile_reasons,
    last_traces,
    list_transforms,
    print_last_interpreter_log,
)
from thunder.compiler.jit import jit
from thunder.compiler.plan import Plan, plan
from thunder.compiler.stats import CacheEntry, CompileData, CompileStats
from thunder.extend import (
    Executor,
    add_executor_lists,
    get_all_executors,
    get_always_executors,
    get_default_executors,
    get_executor,
    resolve_executors,
)
from thunder.ir.execution_file import set_execution_callback_file
from thunder.ir.proxies import (
    AnyProxy,
    ComplexProxy,
    DictProxy,
    FloatProxy,
    IntegerProxy,
    ListProxy,
    NumberProxy,
    Proxy,
    StringProxy,
    TensorProxy,
    TupleProxy,
)
from thunder.ir.trace import TraceCtx
from thunder.ops import prims
from thunder.passes.transform import Transform
from thunder.plugins import ExecutorSpec
from thunder.plugins.contributions import names_of_modules
from thunder.plugins.finders import install_finders, missing_attribute
from thunder.plugins.manager import get_manager
from thunder.recipes import Plugin, Recipe, compile
from thunder.wrappers.thunder_module import ThunderModule

#: The executors that ship with core. They are plugins like any other, found by name, imported by nobody.
BUILTIN_EXECUTORS = (
    ExecutorSpec(
        "torch",
        "thunder.executors.torchex:ex",
        rank=extend.Rank.EAGER,
        always=True,
        aliases=("pytorch",),
        description="Runs every operator eagerly, by the function that its row names.",
    ),
    ExecutorSpec(
        "python",
        "thunder.executors.pythonex:ex",
        rank=extend.Rank.EAGER + 1,
        always=True,
        description="Runs symbols that are implemented in Python.",
    ),
)
#: The modules of core that are plugins, by name.
BUILTIN_MODULES = {
    "devices": "thunder.extend.builtin_devices",
    "session": "thunder.frontend.builtin_rules",
    "tqdm": "thunder.frontend.output.progress_bars",
}
get_manager().set_builtin(BUILTIN_EXECUTORS, BUILTIN_MODULES)
install_finders()
declare_names(lambda: names_of_modules(get_manager()))
for _module in ("devices", "dtypes", "errors", "prims"):  # modules that are attributes of this one
    importlib.import_module(f"thunder.core.{_module}")
with collector_paused():
    importlib.import_module(BUILTIN_MODULES["session"])  # whose modules have primitives, which executors name

__all__ = [
    "CACHE_OPTIONS",
    "SHARP_EDGES_OPTIONS",
    "AnyProxy",
    "CacheEntry",
    "CompileData",
    "CompileStats",
    "ComplexProxy",
    "DebugOptions",
    "DictProxy",
    "Executor",
    "FloatProxy",
    "IntegerProxy",
    "LanguageContext",
    "ListProxy",
    "NumberProxy",
    "Plan",
    "Plugin",
    "Proxy",
    "Recipe",
    "StringProxy",
    "TensorProxy",
    "ThunderModule",
    "TraceCtx",
    "Transform",
    "TupleProxy",
    "__version__",
    "add_executor_lists",
    "cache_hits",
    "cache_misses",
    "cache_option",
    "compile",
    "compile_data",
    "compile_stats",
    "core",
    "devices",
    "dtypes",
    "explain",
    "extend",
    "get_all_executors",
    "get_always_executors",
    "get_default_executors",
    "get_executor",
    "grad",
    "jit",
    "jvp",
    "last_backward_traces",
    "last_compile_options",
    "last_epilogue_traces",
    "last_interpreted_instructions",
    "last_interpreter_log",
    "last_prologue_traces",
    "last_recompile_reasons",
    "last_traces",
    "list_transforms",
    "mark_dynamic",
    "opaque",
    "plan",
    "plugins",
    "prims",
    "print_last_interpreter_log",
    "recipes",
    "resolve_executors",
    "set_execution_callback_file",
    "torch",
    "trace",
    "value_and_grad",
    "vjp",
    "vmap",
    *(name for name in dtypes.__all__ if isinstance(getattr(dtypes, name), dtypes.dtype)),
    *(name for name in errors.__all__ if isinstance(getattr(errors, name), type)),
]


def __getattr__(name: str) -> Any:
    if (name.endswith("_executor") and name not in extend.__all__) or name == "pythonex":
        try:
            return get_executor("python" if name == "pythonex" else name.removesuffix("_executor"))
        except errors.UnknownExecutor as error:  # `hasattr` must get its answer
            raise AttributeError(str(error), name=name) from error
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"thunder.{name}")
        except errors.PluginNotInstalledError as error:  # it says what to install
            raise AttributeError(str(error), name=name) from error
        except ModuleNotFoundError as error:
            if error.name is not None:  # the module exists, and one that it imports does not
                raise
    return missing_attribute(__name__, name)
