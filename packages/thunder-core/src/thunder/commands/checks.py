"""What `python -m thunder doctor` looks at: one function for each part of the environment."""

from __future__ import annotations

import os
import platform
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib.metadata import PackageNotFoundError, distributions, requires
from typing import Final

import torch

from thunder.__about__ import __version__
from thunder.base.errors import PluginError, PluginWarning, did_you_mean
from thunder.commands.plugins import BROKEN
from thunder.compiler.jit import jit
from thunder.extend import known_profiles
from thunder.plugins import ExecutorSpec, PluginState, Unavailable, list_plugins
from thunder.plugins.compatibility import requirement_fault
from thunder.plugins.contributions import declared_options
from thunder.plugins.manager import get_manager
from thunder.plugins.markers import ENTRY_POINT_GROUP
from thunder.plugins.not_installed import FIRST_PARTY

__all__ = ["CHECKS", "Finding", "State", "examined"]

GIB: Final = 2**30


class State(StrEnum):
    """What is to be said of a finding."""

    OK = "ok"
    NOTE = "note"  # works, or was not meant to
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    text: str
    state: State = State.OK


Findings = Iterator[Finding]


def python() -> Findings:
    """The interpreter; with a version whose byte code thunder does not know, nothing can be imported."""
    yield Finding(
        "python", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    )
    yield Finding("platform", f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs")


def pytorch() -> Findings:
    """torch, against what the installed core asks for."""
    try:
        wanted = requires("thunder-core") or []
    except PackageNotFoundError:
        wanted = []  # core runs from a source tree
    fault = requirement_fault(wanted, torch.__version__, of="torch")
    yield Finding("torch", fault or f"{torch.__version__}, {torch.get_num_threads()} threads", _ok(not fault))
    yield Finding("built for", f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU alone")


def packages() -> Findings:
    """Installed distributions of thunder and of plugins. Those of one release have one version."""
    yield Finding("thunder-core", __version__)
    seen = {"thunder-core"}
    for found in distributions():
        name = found.name
        is_plugin = any(entry.group == ENTRY_POINT_GROUP for entry in found.entry_points)
        if name in seen or not (is_plugin or name in FIRST_PARTY):
            continue
        seen.add(name)
        fits = name not in FIRST_PARTY or found.version == __version__
        text = found.version if fits else f"{found.version}, and thunder-core is {__version__}; upgrade one"
        yield Finding(name, text, _ok(fits))


def devices() -> Findings:
    """The devices that are here."""
    if not torch.cuda.is_available():
        reason = "no CUDA device is found" if torch.version.cuda else "torch is built without CUDA"
        yield Finding("cuda", reason, State.NOTE)
        return
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        capability = f"compute capability {found.major}.{found.minor}"
        yield Finding(f"cuda:{index}", f"{found.name}, {capability}, {found.total_memory / GIB:.1f} GiB")


def profiles() -> Findings:
    """The devices that programs can be planned for."""
    try:
        known = known_profiles()
    except PluginError as error:
        yield Finding("profiles", str(error), State.BROKEN)
        return
    for name, profile in known.items():
        memory = f", {profile.memory_bytes / GIB:.0f} GiB" if profile.memory_bytes is not None else ""
        capability = ".".join(map(str, profile.capability))
        yield Finding(name, f"{profile.type} {capability}".strip() + memory)


def plugins() -> Findings:
    """Every plugin that was found."""
    try:
        found = list_plugins()
    except PluginError as error:  # under THUNDER_PLUGIN_STRICT
        yield Finding("plugins", str(error), State.BROKEN)
        return
    for info in found:
        state = State.BROKEN if info.state in BROKEN else State.OK
        if info.state in (PluginState.UNAVAILABLE, PluginState.DISABLED):
            state = State.NOTE
        reason = f": {info.reason}" if info.reason else ""
        yield Finding(info.name, f"{info.state}, from {info.source}{reason}", state)


def executors() -> Findings:
    """Every executor that is declared. They are imported: what fails in that is what a compile would meet."""
    manager = get_manager()
    for spec in manager.executor_specs():
        found = manager.resolve(spec)
        if isinstance(found, Unavailable):
            yield Finding(spec.name, f"unavailable: {found.reason}", _of_unavailable(spec, found))
        else:
            kinds = [word for word, said in (("default", spec.default), ("always", spec.always)) if said]
            version = f"version {found.version}" if found.version else ""
            yield Finding(spec.name, ", ".join(filter(None, [f"rank {int(spec.rank)}", *kinds, version])))


def _of_unavailable(spec: ExecutorSpec, found: Unavailable) -> State:
    """Absent libraries, and what an executor says of itself, are no faults; an exception is one."""
    return State.BROKEN if found.cause is not None and not spec.missing else State.NOTE


def options() -> Findings:
    """The options of `thunder.jit`, with their defaults."""
    for option in declared_options(get_manager()).values():
        yield Finding(option.name, f"{option.default!r}: {option.doc.partition(': ')[0]}")


#: variable → what it does
VARIABLES: Final[Mapping[str, str]] = {
    "THUNDER_PLUGINS": "of the installed plugins, only these are loaded",
    "THUNDER_DISABLE_PLUGINS": "these plugins are not loaded",
    "THUNDER_PLUGIN_AUTOLOAD": "0: no installed plugin is looked for",
    "THUNDER_PLUGIN_STRICT": "1: a plugin that cannot be loaded is an error",
    "CUDA_VISIBLE_DEVICES": "the devices that CUDA sees",
    "CUDA_LAUNCH_BLOCKING": "1: kernels run one by one, which is slow",
    "OMP_NUM_THREADS": "threads of a CPU kernel",
    "PYTORCH_ALLOC_CONF": "torch's allocator of device memory",
    "PYTORCH_CUDA_ALLOC_CONF": "torch's allocator of device memory",
    "PYTORCH_JIT": "0: TorchScript is off",
    "TORCH_COMPILE_DISABLE": "1: torch.compile does nothing, in executors that use it too",
    "TORCHDYNAMO_DISABLE": "1: torch.compile does nothing, in executors that use it too",
    "TORCH_LOGS": "what torch logs",
}


def environment() -> Findings:
    """The variables that matter and are set."""
    for name in sorted(os.environ):
        if name in VARIABLES:
            yield Finding(name, f"{os.environ[name]!r} ({VARIABLES[name]})")
        elif name.startswith("THUNDER_"):
            text = f"is set, and thunder reads no such variable.{did_you_mean(name, VARIABLES)}"
            yield Finding(name, text, State.NOTE)


def program() -> Findings:
    """A small program with its gradient, against eager."""

    def example(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ w).sum()

    x, w = torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(-2, 1, 6).reshape(3, 2)
    w.requires_grad_()
    expected = example(x, w)
    (gradient,) = torch.autograd.grad(expected, w)
    try:
        result = jit(example)(x, w)
        (found,) = torch.autograd.grad(result, w)
    except Exception as error:
        yield Finding("a program", f"{type(error).__name__}: {error}", State.BROKEN)
        return
    agrees = torch.allclose(result, expected) and torch.allclose(found, gradient)
    text = "compiles, and agrees with eager" if agrees else "gives another result or gradient than eager"
    yield Finding("a program", text, _ok(agrees))


def _ok(fits: bool) -> State:
    return State.OK if fits else State.BROKEN


#: part of the report → what finds it
CHECKS: Final[Mapping[str, Callable[[], Findings]]] = {
    "python": python,
    "torch": pytorch,
    "packages": packages,
    "devices": devices,
    "device profiles": profiles,
    "plugins": plugins,
    "executors": executors,
    "options": options,
    "environment": environment,
    "program": program,
}


def examined() -> dict[str, list[Finding]]:
    """The findings of all checks. What plugins warn of while they load is among them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        # The program first: it calls hooks that nobody has called yet, whose faults are told of the plugins.
        first = {"program": list(program())}
        return {part: first.get(part) or list(check()) for part, check in CHECKS.items()}
