"""Programs that thunder compiles after TorchDynamo has replaced methods of torch.nn.Module."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.mutation_guard import GenerationTracker, install_generation_tagging_init

import thunder


@pytest.fixture
def _tracking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Module.__init__ and __setstate__ as the first call of torch.compile leaves them."""
    for name in ("__init__", "__setstate__"):
        monkeypatch.setattr(torch.nn.Module, name, getattr(torch.nn.Module, name))
    monkeypatch.setattr(torch.nn.Module, "___needs_generation_tag_patch", True, raising=False)
    monkeypatch.delattr(torch.nn.Module, "___has_generation_tag_patch", raising=False)  # of torch 2.15
    original = torch.nn.Module.__init__
    install_generation_tagging_init()
    assert torch.nn.Module.__init__ is not original


class Scaled(torch.nn.Module):
    """A module whose forward constructs other ones."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return W x, through modules that are constructed here."""
        activation = torch.nn.LeakyReLU(0.5)
        result: torch.Tensor = torch.nn.Identity()(activation(self.linear(x)))
        return result


@pytest.mark.usefixtures("_tracking")
def test_modules_are_constructed_in_a_program_after_torch_compile() -> None:
    model, x = Scaled(), torch.randn(2, 3)
    assert GenerationTracker.check(model)
    compiled = thunder.jit(model)
    for _ in range(2):
        assert torch.equal(compiled(x), model(x))
        GenerationTracker.generation += 1  # as each torch.compile does
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.usefixtures("_tracking")
def test_a_function_of_the_same_name_is_traced() -> None:
    class GenerationTracker:
        @classmethod
        def tag(cls, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    GenerationTracker.tag.__func__.__code__ = GenerationTracker.tag.__func__.__code__.replace(
        co_qualname="GenerationTracker.tag"
    )
    x = torch.ones(2)
    assert torch.equal(thunder.jit(lambda x: GenerationTracker.tag(x))(x), x + 1)
