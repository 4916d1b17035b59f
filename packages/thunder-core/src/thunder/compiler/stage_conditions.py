"""The executors and transforms for which a stage of a plugin exists."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.base.errors import InvalidArgument, did_you_mean
from thunder.executor_base.executor import Executor
from thunder.passes.transform import Transform
from thunder.plugins.specs import IfPresent

__all__ = ["StageCondition", "as_tuple"]


def as_tuple(values: Any) -> tuple[Any, ...]:
    """Return one value, or a list or tuple of values, as a tuple."""
    return tuple(values) if isinstance(values, list | tuple) else (values,)


@dataclass(frozen=True)
class StageCondition:
    """The executors and transforms of which a compile must have one; any compile fits if there are none.

    An executor is an object or its name or alias, a transform a class or its name.
    """

    executors: tuple[Executor | str, ...] = ()
    transforms: tuple[type[Transform] | str, ...] = ()
    #: the names among them that need not exist
    optional: frozenset[str] = frozenset()

    @classmethod
    def of(cls, stage: str, executors: Any, transforms: Any) -> StageCondition:
        """Return the condition that `Pipeline.add` received; raise InvalidArgument for other types."""
        values = (*as_tuple(executors), *as_tuple(transforms))
        optional = frozenset(value.name for value in values if isinstance(value, IfPresent))
        return cls(
            _checked(stage, "executors", executors, "an executor or its name", _is_executor),
            _checked(stage, "transforms", transforms, "a class of transforms or its name", _is_transform),
            optional,
        )

    def holds(self, executors: Sequence[Executor], transforms: Sequence[Transform]) -> bool:
        """Return whether a stage exists in a compile with these executors and transforms."""
        if not self.executors and not self.transforms:
            return True
        return any(_is_one_of(executor, self.executors) for executor in executors) or any(
            _is_instance_of(transform, self.transforms) for transform in transforms
        )

    def refuse_unknown(self, stage: str, executors: Iterable[str], transforms: Iterable[str]) -> None:
        """Raise InvalidArgument, with the nearest name, for a name that is not among these."""
        for kind, values, names in (
            ("executor", self.executors, {*executors}),
            ("transform", self.transforms, {*transforms}),
        ):
            for value in values:
                if isinstance(value, str) and value not in names | self.optional:
                    raise InvalidArgument(
                        f"the stage {stage!r} exists for the {kind} {value!r}, which is not registered."
                        f"{did_you_mean(value, names)}",
                        found={f"{kind}s": ", ".join(sorted(names)) or "none"},
                        hint=f"For a package that may be absent, write thunder.plugins.IfPresent({value!r}).",
                    )


def _is_executor(value: object) -> bool:
    return isinstance(value, Executor)


def _is_transform(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Transform)


def _checked(stage: str, argument: str, values: Any, expected: str, is_valid: Any) -> tuple[Any, ...]:
    unwrapped = tuple(v.name if isinstance(v, IfPresent) else v for v in as_tuple(values))
    for value in unwrapped:
        if not isinstance(value, str) and not is_valid(value):
            raise InvalidArgument(
                f"the stage {stage!r} has {argument}={values!r}",
                found={"expected": f"{expected}, or several"},
            )
    return unwrapped


def _is_one_of(executor: Executor, wanted: Sequence[Executor | str]) -> bool:
    return any(
        executor is value or (isinstance(value, str) and value in (executor.name, *executor.aliases))
        for value in wanted
    )


def _is_instance_of(transform: Transform, wanted: Sequence[type[Transform] | str]) -> bool:
    names = {cls.__name__ for cls in type(transform).__mro__}
    return any(value in names if isinstance(value, str) else isinstance(transform, value) for value in wanted)
