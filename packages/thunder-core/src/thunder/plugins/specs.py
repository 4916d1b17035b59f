"""The declarations that plugins return from hooks, and the import of the objects that they name."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from thunder.base.attribute_paths import attribute_at
from thunder.base.dtypes import dtype
from thunder.base.errors import InvalidArgument
from thunder.base.plugin_calls import kind_of
from thunder.executor_base.executor import Executor, Rank

__all__ = [
    "CompileEvent",
    "DeviceProfile",
    "ExecutorSpec",
    "IfPresent",
    "Lookaside",
    "TransformSpec",
    "Unavailable",
    "load_target",
    "resolve_executor",
]


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """Declares an executor without importing it.

    Args:
        name: of the executor; must equal the `name` of the object at `target`.
        target: `"module:attribute"`, imported when the executor is first needed. The attribute is an
            Executor, an Unavailable, or a function without arguments that returns one of them. An Executor
            object may be given itself.
        rank: place in the default list, small first; equal ranks are ordered by name.
        default: whether `thunder.jit` uses the executor when no executors are given.
        always: whether it is a fallback executor, which gets what no other executor claims.
        requires: top-level modules that must be installed; they are not imported.
        aliases: other names of the executor.
        description: one line for the listing.
        tried: with which versions of its library and of torch it ran, for `python -m thunder doctor`.
    """

    name: str
    target: str | Executor
    rank: int = field(default=Rank.KERNEL, kw_only=True)
    default: bool = field(default=False, kw_only=True)
    always: bool = field(default=False, kw_only=True)
    requires: tuple[str, ...] = field(default=(), kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)
    description: str = field(default="", kw_only=True)
    tried: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if isinstance(self.target, str):
            _check_target(self.name, self.target)
        if isinstance(self.requires, str) or isinstance(self.aliases, str):
            raise InvalidArgument(f"requires= and aliases= of executor {self.name!r} are tuples of names")

    @property
    def missing(self) -> tuple[str, ...]:
        """The required modules that are not installed."""
        return tuple(name for name in self.requires if find_spec(name.partition(".")[0]) is None)


@dataclass(frozen=True, slots=True)
class TransformSpec:
    """Declares a transform without importing it; it becomes `thunder.transforms.<name>`."""

    name: str
    target: str
    description: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        _check_target(self.name, self.target)


@dataclass(frozen=True, slots=True)
class Lookaside:
    """Declares a callable that is traced in place of a Python function.

    Args:
        fn: a Python function; a method, as its class has it (`Attention.project`); a class method; or a class
            of modules, which means the `forward` of its instances. It is recognised by identity, wherever the
            program gets it from.
        replace_with: a callable with the same parameters, for a method with `self`; or, if `fn` is a class of
            modules, another one, which means its `forward`. Within it the original is called as it is.
        reads_code: whether the objects of the class that has the method `fn`, and all that the package of
            `replace_with` reads of them, are code: when a backward runs, they are what they were when it was
            traced.
        provided_by: the recipe or package, for `thunder.explain`; the hook's plugin sets it.
    """

    fn: Callable[..., Any]
    replace_with: Callable[..., Any]
    reads_code: bool = field(default=False, kw_only=True)
    provided_by: str | None = field(default=None, kw_only=True, compare=False)

    def __post_init__(self) -> None:
        if not callable(self.replace_with):
            raise InvalidArgument(
                f"Lookaside received replace_with={self.replace_with!r}, which cannot be called",
                hint="Pass a function with the parameters of the one that it replaces.",
            )


@dataclass(frozen=True, slots=True)
class IfPresent:
    """Names a stage, an executor or a transform that need not exist, in the place of a stage.

    It is for names of a package that may not be installed: `after=IfPresent("acme.overlap")`.
    """

    name: str


@dataclass(frozen=True, slots=True)
class Unavailable:
    """Returned by a target in place of an executor that cannot work here, with the reason.

    With `lacks_device`, the target is called again whenever the executor is needed: `thunder.plan` assumes
    devices that are not here.
    """

    reason: str
    cause: BaseException | None = field(default=None, compare=False)
    lacks_device: bool = field(default=False, kw_only=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompileEvent:
    """Describes a compile that has ended, for the hook `thunder_compiled`.

    Args:
        name: the qualified name of the function, or the class of the module.
        count: the number of compiles of this compiled object, with this one.
        reasons: why it was compiled again: for each cache entry, newest first, the first `.fact` that did not
            hold, with `.expected`, `.found` and `.source`; empty for a first compile.
        stage_times: the name of each stage that ran → ns.
        steps: the plans that were tried, each with `.plan` (which sizes and numbers are inputs), `.why` it
            was given up (None if it was compiled) and its `.time` (ns).
        entry: the new cache entry, with `computation_traces`, `backward_traces` and `prologue_traces`; None
            if the compile failed.
        error: the exception with which it failed, or None.
        compiled: what `thunder.compile_data` and `thunder.compile_stats` return of the compiled object.
    """

    name: str
    count: int
    reasons: tuple[Any, ...] = ()
    stage_times: Mapping[str, int] = field(default_factory=dict)
    steps: tuple[Any, ...] = ()
    entry: Any = None
    error: BaseException | None = None
    compiled: tuple[Any, Any] | None = None

    @property
    def is_recompile(self) -> bool:
        """Whether the object has other cache entries, none of which fits the call."""
        return bool(self.reasons)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """The properties of a device that checkers may use, so that programs can be compiled without the device.

    Args:
        name: of the model, `"cpu"`, or as a catalogue would list it.
        type: torch's device type, `"cpu"` or `"cuda"`.
        capability: version of the instruction set, as `torch.cuda.get_device_capability` returns it; empty if
            there is none.
        memory_bytes: of the device; None if unknown.
        dtypes: supported by its arithmetic.
        features: any other property that a checker needs, by name.
    """

    name: str
    type: str
    capability: tuple[int, ...] = ()
    memory_bytes: int | None = None
    dtypes: frozenset[dtype] = frozenset()
    features: Mapping[str, object] = field(default_factory=dict)


def _check_target(name: str, target: str) -> None:
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        raise InvalidArgument(
            f"the target of {name!r} is {target!r}",
            hint='A target reads "module:attribute", "acme.kernels:executor".',
        )


#: module of a plugin or of an executor → the seconds that its import took
_import_seconds: dict[str, float] = {}


def import_seconds(target: object) -> float | None:
    """Return how long the import of a target took; None if something else had imported it before."""
    return _import_seconds.get(target.partition(":")[0]) if isinstance(target, str) else None


def load_target(target: str) -> Any:
    """Import and return the module `"module"`, or the attribute `"module:attribute.path"`."""
    module, _, path = target.partition(":")
    is_new, start = module not in sys.modules, time.perf_counter()
    loaded = import_module(module)
    if is_new:
        _import_seconds[module] = time.perf_counter() - start
    return attribute_at(loaded, path) if path else loaded


def resolve_executor(spec: ExecutorSpec) -> Executor | Unavailable:
    """Import and return the executor that a spec declares, or why there is none."""
    missing = spec.missing
    if missing:
        return Unavailable(f"needs {', '.join(missing)}, which is not installed")
    try:
        executor = load_target(spec.target) if isinstance(spec.target, str) else spec.target
        if callable(executor) and not isinstance(executor, Executor):
            executor = executor()
    except Exception as error:
        return Unavailable(f"{type(error).__name__}: {error}", error)
    if isinstance(executor, Unavailable):
        return executor
    if not isinstance(executor, Executor):
        return Unavailable(f"{spec.target} is {kind_of(executor)}, not an executor")
    if executor.name != spec.name:
        return Unavailable(f"{spec.target} is named {executor.name!r}, and was declared as {spec.name!r}")
    return executor
