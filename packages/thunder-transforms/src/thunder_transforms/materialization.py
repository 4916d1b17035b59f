"""The transform that gives tensors on the meta device memory and values."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import torch

from thunder.core.devices import to_torch_device
from thunder.core.errors import InvalidArgument
from thunder.core.transform_common import Transform
from thunder_transforms.initialisers import (
    Initialiser,
    ModuleInit,
    OriginalState,
    StateOfEitherForm,
    TransformedState,
    WithoutValues,
)
from thunder_transforms.state_files import state_dict_of
from thunder_transforms.tensors_in_use import TensorsInUse

__all__ = ["MaterializationTransform"]

_UNSET: Final = object()

_Source = Mapping[str, Any] | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class MaterializationTransform(Transform):
    """Allocates the tensors of a module that are on the meta device, and fills them.

    For example::

        with torch.device("meta"):
            model = Model()
        init = MaterializationTransform.init_from_original_state_dict(state_dict)
        compiled = thunder.jit(model, transforms=[MaterializationTransform("cuda", init=init)])

    The user's module stays on the meta device; the compiled one has the tensors. Tied weights stay tied. The
    transform's place in the list is after those that change weights, such as quantisers, so that
    weights are only ever allocated in their final form; while it runs, memory is at most that of the final
    weights and of the largest one in its original form.

    Args:
        device: where tensors are allocated, except those with an attribute ``__thunder_device``.
        init: the values: what one of the class's ``init_…`` functions returns; a state dict, or the path of
            one, original or transformed, by the form that it fits; None for memory without values (NaN or
            zero), which is loaded before the first call.

    Raises InvalidArgument without ``init``, for a function in place of a module, and where the values do not
    fit.
    """

    identified_by = ()

    def __init__(
        self, device: str | torch.device, *, init: Initialiser | _Source | object | None = _UNSET
    ) -> None:
        if init is _UNSET:
            raise InvalidArgument(
                "MaterializationTransform needs init=, the values of the weights",
                hint="One of MaterializationTransform.init_from_original_state_dict(state_dict), "
                "init_from_transformed_state_dict(state_dict) and init_from_original_module_init(); a state "
                "dict; or None, for weights that are loaded later.",
            )
        self.device = to_torch_device(device)
        self._init: Initialiser | None = _initialiser(init)

    @staticmethod
    def init_from_original_state_dict(state_dict: _Source) -> Initialiser:
        """Return the values of a state dict of the original module, or of files with one."""
        return OriginalState(state_dict_of(state_dict))

    @staticmethod
    def init_from_transformed_state_dict(state_dict: _Source) -> Initialiser:
        """Return the values of a state dict of a compiled module with the same transforms, or of files."""
        return TransformedState(state_dict_of(state_dict))

    @staticmethod
    def init_from_original_module_init() -> Initialiser:
        """Return the values that ``reset_parameters`` of each submodule gives, inner ones first."""
        return ModuleInit()

    from_original_state_dict = init_from_original_state_dict
    from_transformed_state_dict = init_from_transformed_state_dict
    from_original_module_init = init_from_original_module_init

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        """Raise InvalidArgument for a program without weights."""
        if not isinstance(fn, torch.nn.Module):
            raise InvalidArgument(
                f"MaterializationTransform is for modules, and {fn!r} is not a module",
                hint="Pass the module to thunder.jit.",
            )

    def transform_module(self, model: Any) -> None:
        """Allocate and fill the tensors in use that are on the meta device."""
        init, self._init = self._init, None  # a state dict can be freed after this
        assert init is not None, "a transform belongs to one compiled module"
        tensors = TensorsInUse(model, self.device)
        init.fill(tensors)
        tensors.refuse_unfilled()


def _initialiser(init: Any) -> Initialiser:
    if init is None:
        return WithoutValues()
    if isinstance(init, Initialiser):
        return init
    if isinstance(init, (Mapping, str, os.PathLike, Iterable)):
        return StateOfEitherForm(state_dict_of(init))  # type: ignore[arg-type]
    raise InvalidArgument(
        f"init={init!r} is not a source of weights",
        hint="Pass a state dict, its path, or what one of MaterializationTransform.init_… returns.",
    )
