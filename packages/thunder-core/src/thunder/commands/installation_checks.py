"""The checks of `python -m thunder doctor`: one function for each part of the environment."""

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
from thunder.executor_base.refusal import sentence
from thunder.extend import known_profiles
from thunder.plugins import ExecutorSpec, PluginState, Unavailable, list_plugins
from thunder.plugins.compatibility import CORE, package_misfit, requirement_fault
from thunder.plugins.contributions import declared_options
from thunder.plugins.manager import get_manager
from thunder.plugins.markers import ENTRY_POINT_GROUP
from thunder.plugins.not_installed import FIRST_PARTY
from thunder.plugins.specs import import_seconds

__all__ = ["CHECKS", "Finding", "State", "examined"]

GIB: Final = 2**30


class State(StrEnum):
    """Whether a finding is a fault."""

    OK = "ok"
    NOTE = "note"  # not a fault: an absent library, a disabled plugin
    BROKEN = "broken"


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    name: str
    text: str
    state: State = State.OK


Findings = Iterator[Finding]


def python() -> Findings:
    """Report the Python interpreter and the platform."""
    yield Finding(
        "python", f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    )
    yield Finding("platform", f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs")


def pytorch() -> Findings:
    """Report torch, and whether it meets the requirement of the installed core."""
    try:
        requirements = requires(CORE) or []
    except PackageNotFoundError:
        requirements = []  # core runs from a source tree
    fault = requirement_fault(requirements, torch.__version__, of="torch")
    yield Finding("torch", fault or f"{torch.__version__}, {torch.get_num_threads()} threads", _ok(not fault))
    yield Finding("built for", f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU only")


def packages() -> Findings:
    """Report the distributions of thunder and of plugins, which must fit core and each other."""
    yield Finding(CORE, __version__)
    seen = {CORE}
    for distribution in distributions():
        name, version = distribution.name, distribution.version
        is_plugin = any(entry.group == ENTRY_POINT_GROUP for entry in distribution.entry_points)
        if name in seen or not (is_plugin or name in FIRST_PARTY):
            continue
        seen.add(name)
        misfit = package_misfit(name, distribution.requires or ())
        if misfit is not None:
            yield Finding(name, f"{version}, {misfit.reason}. {misfit.remedy}", State.BROKEN)
        elif name in FIRST_PARTY and version != __version__:
            yield Finding(name, f"{version}, which fits {CORE} {__version__}", State.NOTE)
        else:
            yield Finding(name, version)


def devices() -> Findings:
    """Report the CUDA devices of this machine."""
    if not torch.cuda.is_available():
        reason = "no CUDA device is found" if torch.version.cuda else "torch is built without CUDA"
        yield Finding("cuda", reason, State.NOTE)
        return
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        capability = f"compute capability {device.major}.{device.minor}"
        yield Finding(f"cuda:{index}", f"{device.name}, {capability}, {device.total_memory / GIB:.1f} GiB")


def profiles() -> Findings:
    """Report the device profiles, for which programs can be planned."""
    try:
        by_name = known_profiles()
    except PluginError as error:
        yield Finding("profiles", str(error), State.BROKEN)
        return
    for name, profile in by_name.items():
        memory = f", {profile.memory_bytes / GIB:.0f} GiB" if profile.memory_bytes is not None else ""
        capability = ".".join(map(str, profile.capability))
        yield Finding(name, f"{profile.type} {capability}".strip() + memory)


def plugins() -> Findings:
    """Report the plugins, loaded or not."""
    try:
        infos = list_plugins()
    except PluginError as error:  # under THUNDER_PLUGIN_STRICT
        yield Finding("plugins", str(error), State.BROKEN)
        return
    for info in infos:
        state = State.BROKEN if info.state in BROKEN else State.OK
        if info.state in (PluginState.UNAVAILABLE, PluginState.DISABLED):
            state = State.NOTE
        reason = f": {info.reason}" if info.reason else ""
        yield Finding(
            info.name, f"{info.state}, from {info.source}{_import_time(info.module)}{reason}", state
        )


def executors() -> Findings:
    """Report the declared executors. They are imported, as a compile would import them."""
    manager = get_manager()
    for spec in manager.executor_specs():
        executor = manager.resolve(spec)
        tried = f"; tried with {spec.tried}" if spec.tried else ""
        if isinstance(executor, Unavailable):
            yield Finding(spec.name, f"unavailable: {executor.reason}{tried}", _state_of(spec, executor))
        elif (reason := executor.no_effect()) is not None:
            state = State.BROKEN if spec.default else State.NOTE
            yield Finding(spec.name, f"has no effect: {sentence(reason.message, reason.facts)}", state)
        else:
            kinds = [
                word for word, declared in (("default", spec.default), ("always", spec.always)) if declared
            ]
            version = f"version {executor.version}" if executor.version else ""
            facts = ", ".join(filter(None, [f"rank {int(spec.rank)}", *kinds, version]))
            yield Finding(spec.name, facts + _import_time(spec.target) + tried)


def _import_time(target: object) -> str:
    """Return how long the import of a plugin or an executor took, as the end of a line."""
    seconds = import_seconds(target)
    return "" if seconds is None else f", imported in {1000 * seconds:.0f} ms"


def _state_of(spec: ExecutorSpec, unavailable: Unavailable) -> State:
    """Return BROKEN for an exception; an absent library, or a reason that the package gives, is a note."""
    return State.BROKEN if unavailable.cause is not None and not spec.missing else State.NOTE


def options() -> Findings:
    """Report the options of `thunder.jit`, with their defaults."""
    for option in declared_options(get_manager()).values():
        yield Finding(option.name, f"{option.default!r}: {option.doc.partition(': ')[0]}")


#: environment variable → its effect
VARIABLES: Final[Mapping[str, str]] = {
    "THUNDER_PLUGINS": "of the installed plugins, only these are loaded",
    "THUNDER_DISABLE_PLUGINS": "these plugins are not loaded",
    "THUNDER_PLUGIN_AUTOLOAD": "0: no installed plugin is loaded",
    "THUNDER_PLUGIN_STRICT": "1: a plugin that cannot be loaded is an error",
    "THUNDER_LOGS": "these subjects of compiles are shown",
    "THUNDER_LOG_FILE": "events of compiles are written to this file",
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
    """Report the environment variables that are set and have an effect."""
    for name in sorted(os.environ):
        if name in VARIABLES:
            yield Finding(name, f"{os.environ[name]!r} ({VARIABLES[name]})")
        elif name.startswith("THUNDER_"):
            text = f"is set, and thunder reads no such variable.{did_you_mean(name, VARIABLES)}"
            yield Finding(name, text, State.NOTE)


def program() -> Findings:
    """Compile and run a small program with its gradient; compare with eager."""

    def example(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(x @ w).sum()

    x, w = torch.linspace(-1, 1, 12).reshape(4, 3), torch.linspace(-2, 1, 6).reshape(3, 2)
    w.requires_grad_()
    expected = example(x, w)
    (gradient,) = torch.autograd.grad(expected, w)
    try:
        result = jit(example)(x, w)
        (compiled_gradient,) = torch.autograd.grad(result, w)
    except Exception as error:
        yield Finding("a program", f"{type(error).__name__}: {error}", State.BROKEN)
        return
    agrees = torch.allclose(result, expected) and torch.allclose(compiled_gradient, gradient)
    text = "compiles, and agrees with eager" if agrees else "has another result or gradient than eager"
    yield Finding("a program", text, _ok(agrees))


def _ok(fits: bool) -> State:
    return State.OK if fits else State.BROKEN


#: part of the report → its check
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
    """Return the findings of all checks; warnings of plugins are among the findings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)
        # The program runs first: it calls the hooks, whose faults the check of plugins reports.
        first = {"program": list(program())}
        return {part: first.get(part) or list(check()) for part, check in CHECKS.items()}
