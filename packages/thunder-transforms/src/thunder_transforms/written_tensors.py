"""A mode that notes the tensors which an initialisation writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["WrittenStorages", "storage_of"]


def storage_of(tensor: torch.Tensor) -> int:
    """Return the identity of a tensor's storage, on the meta device too."""
    return int(tensor.untyped_storage()._cdata)


class WrittenStorages(TorchDispatchMode):
    """Notes, while it is active, the storages of all tensors that operators write in place."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.written: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Note the arguments that the operator's schema marks as written, and run it."""
        kwargs = kwargs or {}
        for tensor in _written(func, args, kwargs):
            self.written.add(storage_of(tensor))
        return func(*args, **kwargs)


def _written(
    func: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> Iterator[torch.Tensor]:
    for index, argument in enumerate(func._schema.arguments):  # type: ignore[attr-defined]
        if argument.alias_info is None or not argument.alias_info.is_write:
            continue
        value = args[index] if index < len(args) else kwargs.get(argument.name)
        for each in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(each, torch.Tensor):
                yield each
