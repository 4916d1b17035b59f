"""Hooks that a program registers: a handle that it removes fixes no count of handles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import thunder


class Two(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 2)


class Watched(Two):
    def forward(self, x: torch.Tensor) -> Any:
        seen: list[torch.Tensor] = []
        with self.first.register_forward_hook(lambda module, args, out: seen.append(out)):
            y = self.second(self.first(x))
        return y, seen[0].sum()


class OfGradients(Two):
    def forward(self, x: torch.Tensor) -> Any:
        gradients: list[torch.Tensor] = []
        handle = self.first.register_full_backward_hook(
            lambda module, inputs, outputs: gradients.append(outputs[0])
        )
        self.second(self.first(x)).sum().backward()
        handle.remove()
        return gradients[0]


class OfTensors(Two):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.first(x)
        handle = y.register_hook(lambda g: g * 2)
        unused = y.register_hook(lambda g: g * 5)
        unused.remove()
        return self.second(y), handle is unused


class OfOwnModules(Two):
    def forward(self, x: torch.Tensor) -> Any:
        own = nn.Tanh()
        first = own.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        second = own.register_forward_pre_hook(lambda module, args: (args[0] + 1,))
        y = own(x)
        first.remove()
        return y, own(x), len(own._forward_pre_hooks), first.id == second.id


class Kept(Two):
    def forward(self, x: torch.Tensor) -> Any:
        self.first.register_forward_hook(lambda module, args, out: out + 1)
        return self.first(x)


class KeptUnseen(Two):
    def forward(self, x: torch.Tensor) -> Any:
        self.handle = self.first.register_forward_hook(lambda module, args, out: out + 1)
        return self.second(x)


CASES = [(Watched, 1), (OfGradients, 2), (OfTensors, 1), (OfOwnModules, 1), (Kept, 4), (KeptUnseen, 4)]


@pytest.mark.parametrize(("cls", "compiles"), CASES)
@pytest.mark.filterwarnings("ignore:Full backward hook")
def test_hooks_are_registered_as_in_eager(cls: type[Two], compiles: int) -> None:
    eager, own = cls(), cls()
    compiled = thunder.jit(own)
    for call in range(4):
        x = torch.randn(3, 4, generator=torch.Generator().manual_seed(call))
        torch.testing.assert_close(compiled(x), eager(x))
        if call % 2:  # another handle of the process
            for module in (eager, own):
                module.second.register_forward_hook(lambda module, args, out: None).remove()
        assert len(own.first._forward_hooks) == len(eager.first._forward_hooks)
        torch.testing.assert_close(own.first(x), eager.first(x))
    assert thunder.cache_misses(compiled) == compiles


def test_a_handle_that_is_kept_removes_its_own_hook() -> None:
    own = KeptUnseen()
    compiled, handles = thunder.jit(own), []
    for _ in range(3):
        compiled(torch.ones(3, 4))
        handles.append(own.handle)
    assert len({handle.id for handle in handles}) == len(own.first._forward_hooks) == 3
    for left in (2, 1, 0):
        handles.pop(0).remove()
        assert len(own.first._forward_hooks) == left
