"""What a plugin returns from its hooks, and how a name in it becomes an object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from thunder.base.dtypes import dtype
from thunder.base.errors import InvalidArgument
from thunder.executor_base.executor import Executor, Rank

__all__ = ["DeviceProfile", "ExecutorSpec", "TransformSpec", "Unavailable", "load_target", "resolve_executor"]


@dataclass(frozen=True, slots=True)
class ExecutorSpec:
    """Declares an executor without importing it.

    Args:
        name: of the executor; must be the `name` of the object that `target` leads to.
        target: `"module:attribute"`, looked up when the executor is first needed. The attribute is an
            Executor, an Unavailable, or a function without arguments that returns one of them. An Executor
            that is already there may stand here itself.
        rank: place in the default list, small first; equal ranks are ordered by name.
        default: whether `thunder.jit` uses it when no executors are given.
        always: whether it is asked last for whatever nobody else took.
        requires: top-level modules that must be installed; looked for, not imported.
        aliases: other names of it.
        description: one line for the listing.
    """

    name: str
    target: str | Executor
    rank: int = field(default=Rank.KERNEL, kw_only=True)
    default: bool = field(default=False, kw_only=True)
    always: bool = field(default=False, kw_only=True)
    requires: tuple[str, ...] = field(default=(), kw_only=True)
    aliases: tuple[str, ...] = field(default=(), kw_only=True)
    description: str = field(default="", kw_only=True)

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
class Unavailable:
    """What a target gives in place of an executor that cannot work here, and why."""

    reason: str
    cause: BaseException | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProfile:
    """What a checker may know of a device, so that a program for it can be compiled where there is none.

    Args:
        name: of the model, `"cpu"`, or as a catalogue would list it.
        type: torch's device type, `"cpu"` or `"cuda"`.
        capability: version of the instruction set, as `torch.cuda.get_device_capability` gives it; empty if
        there is none.
        memory_bytes: of the device; None if unknown.
        dtypes: that its arithmetic supports.
        features: whatever else a checker asks for, by name.
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


def load_target(target: str) -> Any:
    """The module, or the attribute of a module, that `"module"` or `"module:attribute.path"` names. Imports
    the module.
    """
    module, _, path = target.partition(":")
    found: Any = import_module(module)
    for name in path.split(".") if path else ():
        found = getattr(found, name)
    return found


def resolve_executor(spec: ExecutorSpec) -> Executor | Unavailable:
    """The executor that a spec declares, or why there is none; whatever fails on the way is the reason."""
    missing = spec.missing
    if missing:
        return Unavailable(f"needs {', '.join(missing)}, which is not installed")
    try:
        found = load_target(spec.target) if isinstance(spec.target, str) else spec.target
        if callable(found) and not isinstance(found, Executor):
            found = found()
    except Exception as error:
        return Unavailable(f"{type(error).__name__}: {error}", error)
    if isinstance(found, Unavailable):
        return found
    if not isinstance(found, Executor):
        return Unavailable(f"{spec.target} is an object of type {type(found).__name__}, not an executor")
    if found.name != spec.name:
        return Unavailable(f"{spec.target} is named {found.name!r}, and was declared as {spec.name!r}")
    return found
