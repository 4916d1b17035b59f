"""A library with functions that have no trace."""

import torch

CALLS: list[str] = []


def through_numpy(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
    CALLS.append("through_numpy")
    assert x.data_ptr()
    return torch.from_numpy(x.detach().numpy() * factor)


def outer(x: torch.Tensor) -> torch.Tensor:
    return inner(x) + 1


def inner(x: torch.Tensor) -> torch.Tensor:
    assert x.data_ptr()
    return torch.from_numpy(x.numpy() * 2)


class Doubler:
    def double(self, x: torch.Tensor) -> torch.Tensor:
        assert x.data_ptr()
        return torch.from_numpy(x.numpy() * 2)
