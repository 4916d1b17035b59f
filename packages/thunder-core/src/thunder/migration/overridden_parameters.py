"""The overrides of a compiled module as two mappings that can be written to."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from typing import Any, NoReturn

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.wrappers.thunder_module import ThunderModule

__all__ = ["overrides_buffers", "overrides_parameters"]


class _Overrides(MutableMapping[str, torch.Tensor]):
    """The overriding tensors of one kind, by dotted name; an assignment is a call of `override`."""

    def __init__(self, module: ThunderModule, is_parameter: bool) -> None:
        self._module, self._is_parameter = module, is_parameter

    def _selected(self) -> dict[str, torch.Tensor]:
        buffers = {name for name, _ in self._module._model.named_buffers(remove_duplicate=False)}
        overrides: Any = self._module.overrides
        return {name: t for name, t in overrides.items() if (name not in buffers) is self._is_parameter}

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
    """Return the tensors in use in place of parameters, and those under new names."""
    return _Overrides(module, is_parameter=True)


def overrides_buffers(module: ThunderModule) -> MutableMapping[str, torch.Tensor]:
    """Return the tensors in use in place of buffers."""
    return _Overrides(module, is_parameter=False)
