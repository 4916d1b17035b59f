"""Methods of tensors that take a dtype or a device: those of a proxy may be passed to them.

Torch's parser of arguments refuses objects that are not torch's own, before a proxy sees the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.base import devices, dtypes

__all__ = ["METADATA_METHODS", "torch_metadata"]


def torch_metadata(x: Any) -> Any:
    """Return torch's dtype or device of the same name; anything else unchanged."""
    if isinstance(x, dtypes.dtype):
        return x.torch_dtype
    return devices.to_torch_device(x) if isinstance(x, devices.Device) else x


def _taking_metadata(name: str) -> Callable[..., Any]:
    method = getattr(torch.Tensor, name)

    def call(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return method(
            self, *map(torch_metadata, args), **{key: torch_metadata(value) for key, value in kwargs.items()}
        )

    return call


_NAMES = (
    *("to", "view", "new_tensor", "new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided"),
    *("sum", "nansum", "mean", "nanmean", "prod", "cumsum", "cumprod", "softmax", "log_softmax", "norm"),
)

#: name of a method of ``torch.Tensor`` → the method of ``TensorProxy`` in its place
METADATA_METHODS: Final[dict[str, Callable[..., Any]]] = {name: _taking_metadata(name) for name in _NAMES}
