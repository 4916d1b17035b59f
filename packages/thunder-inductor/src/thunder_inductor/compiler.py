"""TorchInductor: compiles graphs by its entry point for graphs, and loads what it has compiled."""

from __future__ import annotations

import copy
import functools
import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx_inner
from torch._inductor.output_code import CompiledFxGraph, CompiledFxGraphConstants

import thunder
from thunder import __version__
from thunder.extend import ArtefactCache, Region

from .graphs import Graph, graph_of
from .instructions import find_instructions
from .kernels import Strides
from .operators import Mode
from .vector_rounding import cheap_rounding

__all__ = ["InductorCode", "compile_region", "key_of", "load", "store"]

#: settings of TorchInductor that differ from its defaults
_SETTINGS: Mapping[str, Any] = {
    # bfloat16 and float16 are rounded after each operator, as eager rounds them
    "emulate_precision_casts": True,
    # the caller checks strides; sizes are guarded by the program's prologue
    "size_asserts": False,
    # regions are kept in thunder's own cache, under keys that need no graph
    "fx_graph_cache": False,
    # a failed region is reported by thunder
    "triton.cudagraphs": False,
}
#: what TorchInductor need not look for in a mode: its patterns are of matrix products and attention
_SETTINGS_OF_MODES: Mapping[Mode, Mapping[str, Any]] = {"pointwise": {"pattern_matcher": False}, "full": {}}


@dataclass(frozen=True)
class InductorCode:
    """A compiled region, for one combination of input strides.

    Attributes:
        run: takes a list of tensors, which it empties, and returns the results.
        output_strides: the strides (elements) of the results.
        compiled: what TorchInductor returned, of which `run` is a part.
    """

    run: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
    output_strides: tuple[Strides, ...]
    compiled: CompiledFxGraph


def compile_region(region: Region, strides: Sequence[Strides], mode: Mode) -> InductorCode:
    """Compile a region whose inputs have these strides (elements); raises whatever TorchInductor raises."""
    _find_instructions(region)
    settings = {**_SETTINGS, **_SETTINGS_OF_MODES[mode]}
    with config.patch(settings), cheap_rounding(), torch.inference_mode(False), torch.no_grad():
        graph = graph_of(region, strides)
        compiled = _compiled(graph)
    return _code(compiled, graph.output_strides)


def _compiled(graph: Graph) -> CompiledFxGraph:
    with tracing(TracingContext(graph.mode)):
        compiled = compile_fx_inner(graph.module, graph.inputs)
    if not isinstance(compiled, CompiledFxGraph):
        raise TypeError(f"TorchInductor returned {type(compiled).__name__}, since the graph computes nothing")
    return compiled


def _code(compiled: CompiledFxGraph, output_strides: tuple[Strides, ...]) -> InductorCode:
    run = compiled.current_callable
    assert run is not None, "a compiled graph that was not loaded"
    return InductorCode(run, output_strides, compiled)


# -- the cache on disk


def _artefacts() -> ArtefactCache:
    """Return the cache of compiled regions; all that decides what TorchInductor generates is a version."""
    settings = config.save_config_portable(ignore_private_configs=False)
    text = repr(sorted((name, repr(value)) for name, value in settings.items()))
    return ArtefactCache(
        "thunder-inductor",
        {
            "thunder-inductor": f"{__version__} {_sources()}",
            "torch": f"{torch.__version__} {torch.version.git_version}",
            "instructions": torch.backends.cpu.get_cpu_capability(),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
            "settings": hashlib.sha256(text.encode()).hexdigest(),
        },
    )


def _find_instructions(region: Region) -> None:
    if region.outputs[0].device.type == "cpu":
        find_instructions(_artefacts())


@functools.cache
def _sources() -> str:
    """Return a text that changes with edits of the files that decide what a region computes."""
    core = Path(thunder.__file__).parent
    folders = (core / "ops", core / "torch", Path(__file__).parent)
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    states = [(path.name, status.st_size, status.st_mtime_ns) for path in files for status in (path.stat(),)]
    return hashlib.sha256(repr(states).encode()).hexdigest()


def key_of(structure: str, strides: Sequence[Strides], mode: Mode) -> str:
    """Return the key of the code of a region with this structural key and these input strides."""
    return f"{structure} {list(strides)} {mode}"


def store(key: str, code: InductorCode) -> None:
    """Keep compiled code on disk."""
    compiled = copy.copy(code.compiled)
    compiled.prepare_for_serialization()
    _artefacts().put(key, pickle.dumps((compiled, code.output_strides)))


def load(key: str, region: Region) -> InductorCode | None:
    """Return the code of a region that was stored under a key by the same versions, or None."""
    content = _artefacts().get(key)
    if content is None:
        return None
    _find_instructions(region)
    compiled, output_strides = pickle.loads(content)
    compiled.after_deserialization(CompiledFxGraphConstants())
    return _code(compiled, output_strides)
