"""The tensors that transforms could not change, for the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from thunder.base.errors import PluginError
from thunder.base.extension_origin import origin_of
from thunder.base.plugin_calls import kind_of
from thunder.executor_base.refusal import Refusal, sentence
from thunder.passes.transform import Transform, calling_hook

__all__ = ["UnchangedTensor", "unchanged_tensors"]


@dataclass(frozen=True)
class UnchangedTensor:
    """A tensor of the module that a transform left as it is, and its reason."""

    transform: str
    name: str
    code: str
    message: str
    facts: Mapping[str, object]

    def __str__(self) -> str:
        return f"{self.name}: {sentence(self.message, self.facts)}"


def unchanged_tensors(transforms: Iterable[Transform]) -> tuple[UnchangedTensor, ...]:
    """Return the tensors that each transform could not change; PluginError if one returns something else."""
    tensors: list[UnchangedTensor] = []
    for transform in transforms:
        name = type(transform).__name__
        with calling_hook(transform, "unchanged"):
            reasons = transform.unchanged()
        if not isinstance(reasons, Mapping) or not all(isinstance(r, Refusal) for r in reasons.values()):
            raise PluginError(
                f"{name}.unchanged returned {kind_of(reasons)}",
                found={"expected": "a mapping from names of tensors to Refusals"},
            ).blame(origin_of(type(transform)))
        tensors += [
            UnchangedTensor(name, tensor, reason.code, reason.message, dict(reason.facts))
            for tensor, reason in reasons.items()
        ]
    return tuple(tensors)
