"""Buffers that a constructor computes, in modules on the meta device."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import thunder
from thunder.core.errors import InvalidArgument
from thunder_transforms.constructed_buffers import constructed_buffers
from thunder_transforms.materialization import MaterializationTransform


class Rotary(nn.Module):
    """Frequencies that only the constructor computes."""

    def __init__(self, config: SimpleNamespace, device: str | None = None) -> None:
        super().__init__()
        self.config = config
        powers = torch.arange(0, config.width, 2, device=device) / config.width
        self.register_buffer("frequencies", config.base**-powers, persistent=False)


class Attention(nn.Module):
    """Weights, a mask, numbers of a list, and a part whose arguments it does not keep itself."""

    def __init__(self, config: SimpleNamespace) -> None:
        super().__init__()
        self.config = config
        self.linear, self.norm = nn.Linear(config.width, config.width), nn.LayerNorm(config.width)
        self.table = nn.Embedding(5, config.width)
        self.rotary, self.slopes = Rotary(config), Slopes(3)
        self.register_buffer("mask", torch.ones(4, 4).tril().log(), persistent=False)
        self.register_buffer("weights", torch.tensor([0.5, 0.25]), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(self.linear(x)) * self.rotary.frequencies.sum() + self.slopes.slopes.sum()
        return (self.mask.exp() @ x) * self.weights[0]


class Slopes(nn.Module):
    """A constructor whose argument is nowhere."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", 2.0 ** -torch.arange(heads), persistent=False)


CONFIG = SimpleNamespace(width=8, base=100.0)


def on_meta(make: Callable[[], nn.Module]) -> nn.Module:
    with torch.device("meta"):
        return make()


def test_a_model_on_the_meta_device_gets_its_buffers_and_no_weights() -> None:
    module, model = on_meta(lambda: Attention(CONFIG)), Attention(CONFIG)
    names = [name for name, _ in model.named_buffers()]
    state = torch.get_rng_state()
    found = dict(constructed_buffers(module, names))
    assert torch.equal(torch.get_rng_state(), state)
    assert list(found) == names
    for name, value in found.items():
        assert torch.equal(value, model.get_buffer(name)), name
    assert all(t.is_meta for t in (*module.parameters(), *module.buffers()))


@pytest.mark.parametrize("form", ["a state dict", "no values"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_compiled_model_computes_what_the_model_does(form: str, dtype: torch.dtype) -> None:
    model, module = Attention(CONFIG).to(dtype), on_meta(lambda: Attention(CONFIG).to(dtype))
    state = model.state_dict()
    init = MaterializationTransform.init_from_original_state_dict(state) if form == "a state dict" else None
    compiled = thunder.jit(module, transforms=MaterializationTransform("cpu", init=init))
    if init is None:
        compiled.load_original_state_dict(state)
    x = torch.linspace(-1, 1, 32).view(4, 8).to(dtype)
    torch.testing.assert_close(compiled(x), model(x))


def test_the_initialisation_of_a_module_takes_buffers_from_the_constructor() -> None:
    init = MaterializationTransform.init_from_original_module_init()
    compiled = thunder.jit(
        on_meta(lambda: Attention(CONFIG)), transforms=MaterializationTransform("cpu", init=init)
    )
    expected = Attention(CONFIG)
    assert torch.equal(compiled.get_buffer("rotary.frequencies"), expected.rotary.frequencies)
    assert not compiled.get_parameter("linear.weight").is_meta


class Scaled(nn.Module):
    """Keeps another number under the name of its argument."""

    def __init__(self, base: float) -> None:
        super().__init__()
        self.base = base * 2
        self.register_buffer("b", self.base ** torch.arange(3.0))


class Hidden(nn.Module):
    """Does not keep an argument that has a default."""

    def __init__(self, width: int = 3, base: float = 2.0) -> None:
        super().__init__()
        self.width, self.theta = width, base
        self.register_buffer("b", base ** torch.arange(float(width)))


class Random(nn.Module):
    """Draws its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.randn(3))


class FromWeights(nn.Module):
    """Computes its buffer from a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(3))
        self.register_buffer("b", torch.zeros(3))
        self.b.copy_(self.weight.detach())


class Sized(nn.Module):
    """Has a buffer whose size is a global that changes."""

    size = 3

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.zeros(Sized.size))


class Raises(nn.Module):
    """Can be constructed once."""

    made = 0

    def __init__(self) -> None:
        super().__init__()
        Raises.made += 1
        if Raises.made > 1:
            raise ValueError("made before")
        self.register_buffer("b", torch.zeros(3))


REFUSED = {
    "an attribute that is not the argument": (lambda: Scaled(2.0), "its module has another 'base'"),
    "an argument that is kept nowhere": (lambda: Hidden(base=3.0), "does not keep the argument 'base'"),
    "random numbers": (Random, "of memory without values or of random numbers"),
    "values of weights": (FromWeights, "it writes values of the weights into another tensor"),
    "another shape": (Sized, "its buffer has another shape"),
    "an error": (Raises, "it raises ValueError: made before"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_values_that_are_not_certain_are_refused_with_the_reason(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, reason = REFUSED[case]
    monkeypatch.setattr(Raises, "made", 0)
    module = on_meta(make)
    monkeypatch.setattr(Sized, "size", 4)
    with pytest.raises(InvalidArgument, match="b is on the meta device") as error:
        list(constructed_buffers(module, ["b"]))
    assert reason in str(error.value)
