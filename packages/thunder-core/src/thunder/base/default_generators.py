"""The states of torch's default generators of random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

__all__ = ["default_generators_kept", "default_states"]


def default_states() -> list[torch.Tensor]:
    """Return the states of the default generators, of CUDA devices only if CUDA is in use."""
    on_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_devices]


@contextmanager
def default_generators_kept() -> Iterator[None]:
    """Restore the default generators at the end: what is drawn within is not the program's."""
    with torch.random.fork_rng(range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()):
        yield
