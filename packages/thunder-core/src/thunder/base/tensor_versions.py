"""Version counters of tensors, which torch's autograd compares with those that it has saved."""

from __future__ import annotations

from collections.abc import Callable

import torch

__all__ = ["restored_version"]


def restored_version(tensor: torch.Tensor, restore: Callable[[], object]) -> Callable[[], object]:
    """Return ``restore``, after which ``tensor`` has the version that it has now: it was never written.

    A tensor of inference mode has no version, and is written in that mode only.
    """
    if tensor.is_inference():
        return torch.inference_mode()(restore)
    version = tensor._version

    def run() -> None:
        with torch.no_grad():
            restore()
        torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))

    return run
