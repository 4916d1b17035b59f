"""The tensors that a compiled module uses as two mappings that can be written to."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import NoReturn

import torch

from thunder.core.errors import UnsupportedProgram
from thunder.core.module import ThunderModule

__all__ = ["overrides_buffers", "overrides_parameters"]


class _Overrides(MutableMapping[str, torch.Tensor]):
    """The tensors of one kind in use, by dotted name; an assignment is a call of `override`."""

    def __init__(self, module: ThunderModule, is_parameter: bool) -> None:
        self._module, self._is_parameter = module, is_parameter

    def _selected(self) -> dict[str, torch.Tensor]:
        model, overrides = self._module._model, self._module.overrides
        parameters, buffers = (
            dict(named(remove_duplicate=False)) for named in (model.named_parameters, model.named_buffers)
        )
        own, others = (parameters, buffers) if self._is_parameter else (buffers, parameters)
        added = overrides if self._is_parameter else {name: t for name, t in overrides.items() if name in own}
        return {name: t for name, t in (own | dict(added)).items() if name not in others}

    def __getitem__(self, name: str) -> torch.Tensor:
        return self._selected()[name]

    def __setitem__(self, name: str, tensor: torch.Tensor) -> None:
        self._module.override(name, tensor)

    def __delitem__(self, name: str) -> NoReturn:
        raise UnsupportedProgram(
            f"the override of {name!r} cannot be removed",
            hint="Override it with the tensor of the module: module.override(name, tensor).",
        )

    def __iter__(self) -> Iterator[str]:
        return iter(self._selected())

    def __len__(self) -> int:
        return len(self._selected())

    def __repr__(self) -> str:
        return repr(self._selected())


def overrides_parameters(module: ThunderModule) -> MutableMapping[str, torch.Tensor]:
    """Return the parameters in use, overridden or not, and the tensors under new names."""
    return _Overrides(module, is_parameter=True)


def overrides_buffers(module: ThunderModule) -> MutableMapping[str, torch.Tensor]:
    """Return the buffers in use, overridden or not."""
    return _Overrides(module, is_parameter=False)
