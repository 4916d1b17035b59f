"""TorchInductor: its entry point generates code for graphs, whose kernels are compiled together."""

from __future__ import annotations

import copy
import os
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._inductor import codecache, config
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.graph import GraphLowering
from torch._inductor.output_code import CompiledFxGraph, CompiledFxGraphConstants
from torch._inductor.select_algorithm import extern_kernels

from thunder.extend import ArtefactCache, Region, SymbolicInt, compile_together, compile_workers

from .graphs import Graph, graph_of
from .index_strides import with_linear_indices  # noqa: F401  (TorchInductor uses it once it is imported)
from .instructions import are_assumed, find_instructions, keep_instructions, try_instructions
from .kept_code import InductorCode, KeptCode, KernelPlace, add_library, code_of
from .kernels import Strides
from .libraries import kernel_name, key_of_source, source_of
from .library_builds import build
from .operators import Mode
from .outer_loops import without_index  # noqa: F401  (TorchInductor uses it once it is imported)
from .quiet_traces import QuietPatcher  # noqa: F401  (torch.fx uses it once it is imported)
from .settings import Settings
from .symbolic_graphs import SymbolicGraph, forget_answers, is_true, symbolic_graph_of
from .vector_rounding import cheap_rounding
from .wrapper_code import Kernel, Wrapper, wrapper_of

__all__ = ["compile_regions", "compile_symbolic", "run_of_graph"]

#: the setting by which TorchInductor rounds bfloat16 and float16 after each operator, as eager does
_ROUNDS = "emulate_precision_casts"
#: settings of TorchInductor that differ from its defaults
_SETTINGS: dict[str, Any] = {
    # the caller checks strides; sizes are guarded by the program's prologue
    "size_asserts": False,
    # regions are kept in thunder's own cache, under keys that need no graph
    "fx_graph_cache": False,
    # a region is one graph for TorchInductor, which else looks for parts of it for CUDA graphs
    "graph_partition": False,
    # a failed region is reported by thunder
    "triton.cudagraphs": False,
}
#: what TorchInductor need not look for in a mode: its patterns are of large matrix products and attention
_SETTINGS_OF_MODES: dict[Mode, dict[str, Any]] = {
    "auto": {"pattern_matcher": False},
    "pointwise": {"pattern_matcher": False},
    "full": {},
}

#: the method of TorchInductor's graphs that imports a generated module
_LOAD = "_compile_to_module_lines"
#: the most kernels that are compiled as one file
_KERNELS_OF_LIBRARY = 16
#: TorchInductor generates code in one thread at a time
_generating = threading.RLock()


def _renew_lock() -> None:
    """Forget the thread of the parent of a fork that generates code: it is not there."""
    global _generating
    _generating = threading.RLock()


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(after_in_child=_renew_lock)


@dataclass(frozen=True)
class _Generated:
    """The code of a region by TorchInductor: a wrapper, or a graph that runs with TorchInductor."""

    code: Wrapper | CompiledFxGraph
    output_strides: tuple[Strides, ...]


def compile_regions(
    regions: Sequence[tuple[Region, Sequence[Strides]]], settings: Settings, cache: ArtefactCache
) -> list[tuple[InductorCode, KeptCode] | Exception]:
    """Compile regions for these strides (elements) of their inputs; return what runs and what can be kept.

    For a region that fails there is what TorchInductor or the C++ compiler raised.
    """
    has_cpu = any(region.outputs[0].device.type == "cpu" for region, _ in regions)
    if has_cpu:
        find_instructions(cache)
    results = _compile(regions, settings, cache)
    failed = any(isinstance(result, Exception) for result in results)
    if has_cpu and are_assumed():
        if failed and try_instructions(cache):
            return _compile(regions, settings, cache)
        if not failed:
            keep_instructions(cache)
    return results


def _compile(
    regions: Sequence[tuple[Region, Sequence[Strides]]], settings: Settings, cache: ArtefactCache
) -> list[tuple[InductorCode, KeptCode] | Exception]:
    tasks = [partial(_caught, partial(_generate, region, strides, settings)) for region, strides in regions]
    generated = compile_together(tasks, workers=1, description="generating code")
    wrappers = [g.code for g in generated if isinstance(g, _Generated) and isinstance(g.code, Wrapper)]
    kernels = dict.fromkeys(kernel for wrapper in wrappers for kernel in wrapper.kernels.values())
    places = _libraries(list(kernels), cache)
    return [g if isinstance(g, Exception) else _result(g, places, cache) for g in generated]


def _caught(function: Callable[[], Any]) -> Any:
    """Return the result of a function, or the exception that it raised."""
    try:
        return function()
    except Exception as error:  # of any class: it comes from TorchInductor or from a C++ compiler
        return error


# -- generating code


def _describe_system() -> None:
    """Let TorchInductor find once on what it runs: without a GPU by no hash of Triton's files.

    The hash takes a third of a second, and is in no description of a machine without a GPU.
    """
    if torch.cuda.is_available():
        return
    of_triton = codecache.triton_key
    try:
        codecache.triton_key = lambda: None
        codecache.CacheBase.get_system()
    finally:
        codecache.triton_key = of_triton


@contextmanager
def _configured(settings: Settings) -> Iterator[None]:
    """Set what holds while TorchInductor generates code; one thread at a time does."""
    configuration = {**_SETTINGS, **_SETTINGS_OF_MODES[settings.mode], _ROUNDS: settings.rounds}
    with (
        _generating,
        config.patch(configuration),
        cheap_rounding(),
        torch.inference_mode(False),
        torch.no_grad(),
    ):
        _describe_system()
        yield


def _generate(region: Region, strides: Sequence[Strides], settings: Settings) -> _Generated:
    wrappers: list[Wrapper] = []
    with _configured(settings), _wrappers_in(wrappers):
        graph = graph_of(region, strides, rounds=settings.rounds)
        compiled = _compiled(graph)
    return _Generated(wrappers[0] if wrappers else compiled, graph.output_strides)


@dataclass(frozen=True)
class _SymbolicCode:
    """Code for many sizes, with the conditions under which it is right."""

    run: Callable[[list[Any]], Sequence[torch.Tensor]]
    symbols: tuple[Any, ...]
    conditions: tuple[Any, ...]

    def serves(self, sizes: Sequence[Any]) -> bool:
        values = dict(zip(self.symbols, sizes, strict=True))
        return all(is_true(condition, values) for condition in self.conditions)


def compile_symbolic(
    region: Region,
    sizes: Sequence[SymbolicInt],
    inputs: Sequence[Any],
    outputs: Sequence[Any] | None,
    settings: Settings,
    cache: ArtefactCache,
) -> _SymbolicCode:
    """Compile a region for many sizes, and these strides (elements) of its inputs and outputs.

    The code is kept in memory only.
    """
    find_instructions(cache)
    try:
        with _configured(settings):
            graph = symbolic_graph_of(region, sizes, inputs, outputs, rounds=settings.rounds)
            run = _loaded(_compiled(graph))
    finally:
        forget_answers()
    return _SymbolicCode(run, graph.symbols, graph.conditions)


def _compiled(graph: Graph | SymbolicGraph) -> CompiledFxGraph:
    with tracing(TracingContext(graph.mode)):
        compiled = compile_fx_inner(graph.module, graph.inputs)
    if not isinstance(compiled, CompiledFxGraph):
        raise TypeError(f"TorchInductor returned {type(compiled).__name__}, since the graph computes nothing")
    return compiled


@contextmanager
def _wrappers_in(wrappers: list[Wrapper]) -> Iterator[None]:
    """Within the context, modules that TorchInductor generates in this thread are appended, and not imported.

    One that does not run without TorchInductor is imported, which compiles its kernels.
    """
    thread, load = threading.get_ident(), getattr(GraphLowering, _LOAD)

    def take(self: GraphLowering, module: Any) -> Any:
        wrapper = None
        if threading.get_ident() == thread and not self.constants:
            wrapper = wrapper_of(module.value, _is_function_of_torch)
        if wrapper is None:
            return load(self, module)
        wrappers.append(wrapper)
        return SimpleNamespace(call=None, __file__="<code of a region>")

    try:
        setattr(GraphLowering, _LOAD, take)
        yield
    finally:
        setattr(GraphLowering, _LOAD, load)


def _is_function_of_torch(name: str) -> bool:
    return hasattr(torch, name) and getattr(extern_kernels, name, None) is getattr(torch, name)


# -- compiling C++


def _libraries(kernels: Sequence[Kernel], cache: ArtefactCache) -> dict[Kernel, KernelPlace | Exception]:
    """Return the places of kernels in libraries, which are compiled at the same time.

    The kernels of a library that cannot be compiled are compiled one by one, so that the others do not fail.
    """
    count = min(compile_workers(), -(-len(kernels) // _KERNELS_OF_LIBRARY) or 1)
    groups = [kernels[i::count] for i in range(count)]
    places = _compile_groups([group for group in groups if group], cache)
    failed = [[kernel] for kernel in kernels if isinstance(places[kernel], Exception)]
    return places if len(kernels) == 1 else places | _compile_groups(failed, cache)


def _compile_groups(
    groups: Sequence[Sequence[Kernel]], cache: ArtefactCache
) -> dict[Kernel, KernelPlace | Exception]:
    sources = [source_of(group) for group in groups]
    tasks = [partial(_caught, partial(_library_key, source, cache)) for source in sources]
    places: dict[Kernel, KernelPlace | Exception] = {}
    for group, key in zip(groups, compile_together(tasks), strict=True):
        for number, kernel in enumerate(group):
            places[kernel] = key if isinstance(key, Exception) else KernelPlace(key, kernel_name(number))
    return places


def _library_key(source: str, cache: ArtefactCache) -> str:
    """Compile and load a library, and return the key under which it is kept."""
    key = key_of_source(source)
    add_library(cache, key, lambda: build(source))
    return key


def _result(
    generated: _Generated, places: dict[Kernel, KernelPlace | Exception], cache: ArtefactCache
) -> tuple[InductorCode, KeptCode] | Exception:
    strides = generated.output_strides
    if isinstance(generated.code, CompiledFxGraph):
        run = _loaded(generated.code)
        return InductorCode(run, strides), KeptCode("", {}, strides, _pickled(generated.code))
    kernels: dict[str, KernelPlace] = {}
    for name, kernel in generated.code.kernels.items():
        place = places[kernel]
        if isinstance(place, Exception):
            return place
        kernels[name] = place
    kept = KeptCode(generated.code.function, kernels, strides)
    code = code_of(cache, kept)
    assert code is not None, "a library that was just loaded"
    return code, kept


# -- graphs that run with TorchInductor


def _pickled(compiled: CompiledFxGraph) -> bytes:
    compiled = copy.copy(compiled)
    compiled.prepare_for_serialization()
    return pickle.dumps(compiled)


def run_of_graph(content: bytes) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
    """Return the function of a compiled graph that was kept."""
    compiled: CompiledFxGraph = pickle.loads(content)
    compiled.after_deserialization(CompiledFxGraphConstants())
    return _loaded(compiled)


def _loaded(compiled: CompiledFxGraph) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
    run = compiled.current_callable
    assert run is not None, "a compiled graph that was not loaded"
    return run
