"""Programs of modules with transforms: what they depend on, of the transforms and of the tensors in use.

Transforms change the module when it is compiled, in each process. Their hooks on traces do not run for a kept
program, which is used where the identities of the transforms are equal, and the forms of the tensors in use.
"""

from __future__ import annotations

import enum
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from thunder.core.entries import Overrides, Transform
from thunder_store.descriptions import name_of, named
from thunder_store.digests import class_digest
from thunder_store.reasons import NotKept
from thunder_store.values import write_value

__all__ = ["overrides_form", "transform_form"]


def transform_form(transform: Transform) -> list[Any]:
    """Return the class of a transform and its identity; raise NotKept for one without an identity."""
    cls, identity = type(transform), transform.program_identity()
    name = list(name_of(cls))
    if identity is None:
        raise NotKept("transforms", f"{cls.__qualname__} has no identity")
    if named(*name) is not cls or name[0] == "__main__" or not getattr(sys.modules[name[0]], "__file__", ""):
        raise NotKept("transforms", f"{cls.__qualname__} is of no module with a file")
    return [*name, class_digest(cls), write_value(identity, partial(_member, cls))]


def _member(cls: type, value: Any) -> str:
    """Return a member of an enumeration as text; raise NotKept for another object in an identity."""
    if not isinstance(value, enum.Enum):
        raise NotKept("transforms", f"the identity of {cls.__qualname__} has a {type(value).__qualname__}")
    return f"{type(value).__module__}:{value}"


def overrides_form(overrides: Overrides | None) -> list[Any]:
    """Return the forms of the tensors in use, of those in whose place they are, and which are the same."""
    if overrides is None:
        return []
    numbers: dict[int, int] = {}
    return [
        [
            name,
            _tensor_form(tensor, numbers),
            _tensor_form(overrides.originals.get(name), numbers),
            name in overrides.own_form,
            [[position, list(shape), str(dtype)] for position, (shape, dtype) in _forms(overrides, name)],
        ]
        for name, tensor in overrides.tensors.items()
    ]


def _forms(overrides: Overrides, name: str) -> Sequence[Any]:
    return sorted(overrides.forms.get(name, {}).items())


def _tensor_form(tensor: torch.Tensor | None, numbers: dict[int, int]) -> Any:
    """Return the number of a tensor among those that were seen, with its form where it is a new one."""
    if tensor is None or id(tensor) in numbers:
        return None if tensor is None else numbers[id(tensor)]
    numbers[id(tensor)] = len(numbers)
    cls = f"{type(tensor).__module__}:{type(tensor).__qualname__}"
    return [cls, list(tensor.shape), str(tensor.dtype), str(tensor.device), tensor.requires_grad]
