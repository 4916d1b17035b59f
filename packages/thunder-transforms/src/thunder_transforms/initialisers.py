"""Sources of the values of materialised weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from thunder.core.errors import InvalidArgument
from thunder_transforms.module_copies import names_of_tensors, structural_copy
from thunder_transforms.module_initialisation import initial_values
from thunder_transforms.tensors_in_use import TensorsInUse

__all__ = [
    "Initialiser",
    "ModuleInit",
    "OriginalState",
    "StateOfEitherForm",
    "TransformedState",
    "WithoutValues",
]


class Initialiser(ABC):
    """The values of the tensors of a module."""

    @abstractmethod
    def fill(self, tensors: TensorsInUse) -> None:
        """Give values to all tensors that are on the meta device."""


class OriginalState(Initialiser):
    """A state dict of the original module, which the transforms before turn into the form in use."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state

    def fill(self, tensors: TensorsInUse) -> None:
        """Fill submodule by submodule; buffers in no state dict by `reset_parameters`."""
        values = _loaded(tensors.model, self.state, tensors.transient)
        self.state = {}
        persistent = {name: value for name, value in values.items() if name not in tensors.transient}
        for name in values.keys() - persistent.keys():
            tensors.fill(name, values.pop(name))
        values.clear()
        for name, value in tensors.compiled.transformed_items(persistent):
            if name not in tensors.tensors:
                raise _unused(name)
            tensors.fill(name, value)
        tensors.fill_buffers()


class TransformedState(Initialiser):
    """A state dict of a compiled module with the same transforms."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state

    def fill(self, tensors: TensorsInUse) -> None:
        """Fill tensor by tensor; buffers in no state dict by `reset_parameters`."""
        differences = _differences(self.state, _persistent(tensors), tensors, same_dtypes=False)
        if differences:
            raise InvalidArgument(
                "the state dict does not have the form of the transformed module",
                found={"differences": "; ".join(differences)},
                hint="A state dict of the original module is loaded with init_from_original_state_dict. The "
                "transforms that have these tensors come before MaterializationTransform in the list.",
            )
        filled: set[int] = set()
        for name in self.state:
            if id(tensors.tensors[name]) not in filled:
                tensors.fill(name, self.state[name])
                filled.add(id(tensors.tensors[name]))
        tensors.fill_buffers()
        self.state = {}


class StateOfEitherForm(Initialiser):
    """A state dict of the original module if it fits that, else one of the transformed form."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state

    def fill(self, tensors: TensorsInUse) -> None:
        """Fill from the form that the names, shapes and dtypes of the state dict fit.

        Raises InvalidArgument with the differences to both, if it fits neither.
        """
        state, self.state = self.state, {}
        original = _differences(state, dict(_members(tensors.model)), tensors, same_dtypes=True)
        if not original:
            OriginalState(state).fill(tensors)
            return
        transformed = _differences(state, _persistent(tensors), tensors, same_dtypes=True)
        if transformed:
            raise InvalidArgument(
                "the state dict fits neither the original module nor the transformed one",
                found={"original": "; ".join(original), "transformed": "; ".join(transformed)},
                hint="init_from_original_state_dict and init_from_transformed_state_dict name the form, and "
                "convert dtypes.",
            )
        TransformedState(state).fill(tensors)


class ModuleInit(Initialiser):
    """The values that the module's own methods give."""

    def fill(self, tensors: TensorsInUse) -> None:
        """Fill submodule by submodule, in the order of construction."""
        overridden = tensors.compiled.overrides
        for values in initial_values(tensors.model, tensors.device_of, overridden):
            _fill_submodule(tensors, values)
            values.clear()  # before memory is allocated for the next one


def _fill_submodule(tensors: TensorsInUse, values: Mapping[str, torch.Tensor]) -> None:
    """Fill the tensors of a submodule from their original values, whose memory is adopted where it fits."""
    persistent = {name: values[name] for name in values if name not in tensors.transient}
    for name in values.keys() - persistent.keys():
        tensors.fill(name, values[name], adopt=True)
    for name, value in tensors.compiled.transformed_items(persistent):
        if name not in tensors.tensors:
            raise _unused(name)
        tensors.fill(name, value, adopt=value is values.get(name))


class WithoutValues(Initialiser):
    """Memory alone: NaN in floating-point tensors, else zero."""

    def fill(self, tensors: TensorsInUse) -> None:
        """Allocate every tensor; buffers in no state dict have the values of `reset_parameters`."""
        tensors.fill_buffers()
        for name, used in list(tensors.tensors.items()):
            if tensors.is_unfilled(name):
                number = torch.nan if used.is_floating_point() or used.is_complex() else 0
                value = torch.full((), number, dtype=used.dtype)
                tensors.fill(name, value.expand(used.shape))


def _loaded(model: nn.Module, state: Mapping[str, Any], transient: frozenset[str]) -> dict[str, Any]:
    """Return the tensors of a state dict under the names of a module, as torch's loader assigns them.

    A tied weight needs one of its names. Buffers that are in no state dict may be in this one. Raises
    InvalidArgument for missing and unexpected names, and for what torch's loader refuses.
    """
    copy, names = structural_copy(model), names_of_tensors(model)
    before = dict(_members(copy))
    complete = _with_tied_names(state, names)
    extra = {name: complete.pop(name) for name in transient if name in complete}
    stateful = [name for name in complete if name.rpartition(".")[2] == "_extra_state"]
    if stateful:
        raise InvalidArgument(
            "the state dict has state that is not a tensor, which a module on the meta device cannot take",
            found={"names": ", ".join(stateful)},
            hint="Materialise without it, and load it with load_state_dict.",
        )
    try:
        result = copy.load_state_dict(complete, strict=False, assign=True)
    except RuntimeError as error:
        raise InvalidArgument(str(error)) from error
    if result.missing_keys or result.unexpected_keys:
        found = {"missing": result.missing_keys, "unexpected": result.unexpected_keys}
        raise InvalidArgument(
            "the state dict is not one of the original module",
            found={key: ", ".join(value) for key, value in found.items() if value},
            hint="One of the transformed module is loaded with init_from_transformed_state_dict.",
        )
    after = dict(_members(copy))
    return {name: t for name, t in after.items() if t is not before[name]} | extra


def _with_tied_names(state: Mapping[str, Any], names: Mapping[int, list[str]]) -> dict[str, Any]:
    """Return a state dict with all names of each tied weight of which it has one, and its versions."""
    complete = dict(state.items())
    for own in names.values():
        present = next((name for name in own if name in complete), None)
        if present is not None and len(own) > 1:
            complete.update({name: complete[present] for name in own if name not in complete})
    return complete


def _members(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    return [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]


def _persistent(tensors: TensorsInUse) -> dict[str, torch.Tensor]:
    return {n: t for n, t in tensors.tensors.items() if n not in tensors.transient}


def _differences(
    state: Mapping[str, Any],
    expected: Mapping[str, torch.Tensor],
    tensors: TensorsInUse,
    *,
    same_dtypes: bool,
) -> list[str]:
    """Return in what the names, shapes and dtypes of a state dict differ from tensors; [] if they agree."""
    present = {id(expected[name]) for name in state if name in expected}
    lines = [
        f"{name} is missing"
        for name, tensor in expected.items()
        if id(tensor) not in present and name not in tensors.transient
    ]
    for name in state:
        if name not in expected:
            lines.append(f"{name} is unknown")
            continue
        value, tensor = state[name], expected[name]
        if not isinstance(value, torch.Tensor) or value.shape != tensor.shape:
            lines.append(f"{name} has shape {tuple(getattr(value, 'shape', ()))}, not {tuple(tensor.shape)}")
        elif same_dtypes and value.dtype != tensor.dtype:
            lines.append(f"{name} has {value.dtype}, not {tensor.dtype}")
    return lines


def _unused(name: str) -> InvalidArgument:
    return InvalidArgument(
        f"a transform returned the state of {name}, and the compiled module has no tensor of that name",
        hint="transform_module of the same transform calls override(name, tensor) for it.",
    )
