"""Compiled regions in the cache on disk, which load without TorchInductor where it is not needed."""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import platform
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import torch

import thunder
from thunder import __version__
from thunder.extend import ArtefactCache, Region, structural_key

from .kernels import Strides
from .libraries import load_library
from .settings import Settings
from .wrapper_code import function_of
from .wrapper_memory import bytes_beside_results

__all__ = [
    "CacheWith",
    "InductorCode",
    "KeptCode",
    "KernelPlace",
    "add_library",
    "changed_settings",
    "code_of",
    "load_region",
    "open_cache",
    "store_region",
]

_PACKAGE: Final = "thunder-inductor"
#: variables of the environment that are settings of TorchInductor or of its compiler, by their beginnings
_SETTINGS = ("TORCHINDUCTOR_", "TORCH_INDUCTOR_", "INDUCTOR_", "CXX", "OMP_")
#: those of them that do not decide what is compiled
_PLACES = frozenset({"TORCHINDUCTOR_CACHE_DIR", "TORCHINDUCTOR_COMPILE_THREADS"})


@dataclass(frozen=True)
class InductorCode:
    """A compiled region, for one combination of input strides.

    Attributes:
        run: takes a list of tensors, which it empties, and returns the results.
        output_strides: the strides (elements) of the results.
        workspace: the bytes that a run allocates beside the results.
    """

    run: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
    output_strides: tuple[Strides, ...]
    workspace: int = 0


@dataclass(frozen=True)
class KernelPlace:
    """The place of a kernel: the key of its library in the cache, and its name there."""

    library: str
    name: str


@dataclass(frozen=True)
class KeptCode:
    """The code of a region, as it is kept on disk.

    Attributes:
        function: the definition of the Python function of the region; empty if it needs TorchInductor.
        kernels: the kernels that the function calls, by its names for them.
        output_strides: the strides (elements) of the results.
        graph: the compiled graph that runs with TorchInductor, pickled; empty if there is a function.
    """

    function: str
    kernels: Mapping[str, KernelPlace]
    output_strides: tuple[Strides, ...]
    graph: bytes = b""


class CacheWith(ArtefactCache):
    """The cache of compiled regions with artefacts that are in memory too, by key."""

    def __init__(self, versions: Mapping[str, str], artefacts: Mapping[str, bytes] | None = None) -> None:
        super().__init__(_PACKAGE, versions)
        self.artefacts = dict(artefacts or {})

    def get(self, key: str) -> bytes | None:
        """Return an artefact, and keep it in memory."""
        content = self.artefacts.get(key)
        if content is None:
            content = super().get(key)
            if content is not None:
                self.artefacts[key] = content
        return content

    def put(self, key: str, artefact: bytes) -> None:
        """Keep an artefact in memory and on disk."""
        self.artefacts[key] = artefact
        super().put(key, artefact)


def open_cache() -> ArtefactCache:
    """Return the cache of compiled regions; all that decides what TorchInductor generates is a version."""
    return ArtefactCache(
        _PACKAGE,
        {
            "thunder-inductor": f"{__version__} {_sources()}",
            "torch": f"{torch.__version__} {torch.version.git_version}",
            "python": f"{sys.implementation.cache_tag} {sysconfig.get_platform()}",
            "processor": f"{torch.backends.cpu.get_cpu_capability()} {_processor()}",
            "threads": str(torch.get_num_threads()),
            "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else "none",
            "settings": hashlib.sha256(_settings().encode()).hexdigest(),
        },
    )


def _settings() -> str:
    """Return TorchInductor's settings: variables of the environment, and what the process has changed."""
    variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_SETTINGS) and name not in _PLACES
    }
    changes = sorted((name, repr(value)) for name, value in changed_settings().items())
    return f"{sorted(variables.items())} {changes}"


def changed_settings() -> dict[str, Any]:
    """Return TorchInductor's settings that differ from those with which a process starts, by name."""
    config = sys.modules.get("torch._inductor.config")
    if config is None:
        return {}  # nothing is changed in what was not imported
    values = config.save_config_portable(ignore_private_configs=False)
    return {name: value for name, value in values.items() if value != _initial(config._config[name])}


def _initial(entry: Any) -> object:
    """Return the value that a setting has at first: a variable of the environment has it, or its default."""
    values = (entry.env_value_force, entry.env_value_default, entry.default)
    return next(value for value in values if type(value) is not object)  # a bare object: it is not set


@functools.cache
def _processor() -> str:
    """Return a text that says which instructions the CPU has; kernels may use all of them."""
    information = Path("/proc/cpuinfo")
    if not information.exists():
        return platform.processor()
    first = information.read_text(encoding="utf-8").partition("\n\n")[0]
    lines = [line for line in first.splitlines() if line.startswith(("flags", "Features", "model name"))]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@functools.cache
def _sources() -> str:
    """Return a text that changes with edits of the files that decide what a region computes."""
    core = Path(thunder.__file__).parent
    folders = (core / "ops", core / "torch", Path(__file__).parent)
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    states = [(path.name, status.st_size, status.st_mtime_ns) for path in files for status in (path.stat(),)]
    return hashlib.sha256(repr(states).encode()).hexdigest()


def key_of(structure: str, strides: Sequence[Strides], settings: Settings) -> str:
    """Return the key of the code of a region with this structural key and these input strides."""
    return f"{structure} {list(strides)} {settings}"


def store(cache: ArtefactCache, key: str, code: KeptCode) -> None:
    """Keep the code of a region on disk."""
    cache.put(key, pickle.dumps(code))


def load(cache: ArtefactCache, key: str) -> InductorCode | None:
    """Return the code of a region that was stored under a key by the same versions, or None."""
    content = cache.get(key)
    return None if content is None else code_of(cache, pickle.loads(content))


def load_region(
    cache: ArtefactCache, region: Region, strides: Sequence[Strides], settings: Settings
) -> InductorCode | None:
    """Return the code of a region with these input strides, if it was stored, or None."""
    structure = structural_key(region)
    return None if structure is None else load(cache, key_of(structure, strides, settings))


def store_region(
    cache: ArtefactCache, region: Region, strides: Sequence[Strides], settings: Settings, code: KeptCode
) -> None:
    """Keep the code of a region on disk, unless a constant of it has no complete text."""
    structure = structural_key(region)
    if structure is not None:
        store(cache, key_of(structure, strides, settings), code)


def code_of(cache: ArtefactCache, kept: KeptCode) -> InductorCode | None:
    """Return the code of a region; None if a library of its kernels is not in the cache any more."""
    if kept.graph:
        inductor = import_module("thunder_inductor.compiler")
        return InductorCode(inductor.run_of_graph(kept.graph), kept.output_strides)
    kernels: dict[str, Callable[..., None]] = {}
    for name, place in kept.kernels.items():
        library = _library(cache, place.library)
        if library is None:
            return None
        kernels[name] = library[place.name]
    workspace = bytes_beside_results(kept.function, kept.output_strides)
    return InductorCode(function_of(kept.function, kernels), kept.output_strides, workspace)


#: the libraries that are loaded, by the path that they have in the cache
_libraries: dict[Path, Mapping[str, Callable[..., None]]] = {}


def add_library(cache: ArtefactCache, key: str, build: Callable[[], bytes]) -> None:
    """Build and load a library of kernels and keep it, unless that was done before."""
    if _library(cache, key) is None:
        content = build()
        _libraries[cache.path(key)] = load_library(content)
        cache.put(key, content)


def _library(cache: ArtefactCache, key: str) -> Mapping[str, Callable[..., None]] | None:
    """Return the functions of a library that is loaded or in the cache."""
    path = cache.path(key)
    if path not in _libraries:
        content = cache.get(key)
        if content is None:
            return None
        _libraries[path] = load_library(content)
    return _libraries[path]
