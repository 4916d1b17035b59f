"""Tensors in places of numbers: torch reads their value in each call, and so does the compiled program."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.ao.quantization.observer import HistogramObserver

import thunder

F = nn.functional
PROGRAMS: dict[str, Callable[[Tensor], Tensor]] = {
    "histc": lambda x: torch.histc(x, 4, min=x.min(), max=x.max()),
    "positional histc": lambda x: torch.histc(x, 4, x.min(), x.max()),
    "alpha": lambda x: torch.add(x, x, alpha=x.max()),
    "addmm": lambda x: torch.addmm(x[:2, None], x[:2, None], x[None, :3], beta=x.max(), alpha=x.min()),
    "slope": lambda x: F.leaky_relu(x, x.max()),
    "softplus": lambda x: F.softplus(x, beta=x.max(), threshold=x.min()),
    "full": lambda x: torch.full((2,), x.max()),
    "hardtanh": lambda x: F.hardtanh(x, x.min() / 2, x.max() / 2),
    "pad": lambda x: F.pad(x, (1, 1), value=x.max()),
    "order of a norm": lambda x: torch.linalg.vector_norm(x, x.abs().max().ceil()),
    "clamp keeps tensors": lambda x: torch.clamp(x, x.min() / 2, x.max() / 2),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_value_is_read_in_each_call(name: str) -> None:
    program = PROGRAMS[name]
    compiled = thunder.jit(program)
    x = torch.tensor([0.5, -1.25, 2.0, 0.75])
    for factor in (1.0, 1.5, -0.25):
        torch.testing.assert_close(compiled(factor * x), program(factor * x), rtol=0, atol=0)


def test_one_entry_serves_all_values() -> None:
    compiled = thunder.jit(PROGRAMS["slope"])
    for factor in (1.0, 1.5):
        compiled(factor * torch.arange(3.0))
    assert thunder.cache_misses(compiled) == 1


def test_a_tensor_that_requires_grad_is_no_number() -> None:
    compiled = thunder.jit(PROGRAMS["slope"])
    with pytest.raises(TypeError, match="negative_slope"):
        compiled(torch.arange(3.0, requires_grad=True))


def test_an_observer_of_histograms_is_called_within_a_program() -> None:
    def program(observer: HistogramObserver, x: Tensor) -> Tensor:
        return observer(x) * 2

    compiled, observer, eager = thunder.jit(program), HistogramObserver(bins=16), HistogramObserver(bins=16)
    generator = torch.Generator().manual_seed(0)
    for factor in (1.0, 2.0, 3.0):
        x = factor * torch.randn(20, generator=generator)
        torch.testing.assert_close(compiled(observer, x), program(eager, x), rtol=0, atol=0)
        for name, value in eager.state_dict().items():
            torch.testing.assert_close(observer.state_dict()[name], value, rtol=0, atol=0)
