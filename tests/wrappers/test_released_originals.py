"""Originals that a transform releases: no memory, errors by name, and the compiled module as before."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import thunder
from wrappers.test_overrides import Halved, Tied, two_layers


class Released(Halved):
    """Overrides every weight by half of it, and releases the weight."""

    def transform_module(self, model):
        super().transform_module(model)
        for name in model.overrides:
            model.release_original(name)


X = torch.linspace(-1, 1, 6).reshape(2, 3)


def both():
    model = two_layers()
    return (
        model,
        thunder.jit(model, transforms=[Released()]),
        thunder.jit(two_layers(), transforms=[Halved()]),
    )


def test_the_compiled_module_is_as_before():
    model, compiled, other = both()
    shape, strides = model[0].weight.shape, (3, 1)
    assert (model[0].weight.shape, model[0].weight.stride()) == (shape, strides)
    assert torch.equal(compiled(X), other(X))
    compiled(X).sum().backward()
    other(X).sum().backward()
    assert torch.equal(compiled[0].bias.grad, other[0].bias.grad)
    torch.testing.assert_close(dict(compiled.state_dict()), dict(other.state_dict()))
    torch.testing.assert_close(dict(compiled.original_state_dict()), dict(other.original_state_dict()))
    assert thunder.cache_misses(compiled) == 1


def test_the_memory_is_dropped():
    model = nn.Sequential(nn.Linear(64, 64))
    address = model[0].weight.data_ptr()
    compiled = thunder.jit(model, transforms=[Released()])
    weight = model[0].weight
    with torch._C.DisableTorchFunctionSubclass():
        assert weight.untyped_storage().nbytes() == weight.itemsize
        assert weight.data_ptr() != address
    assert compiled.get_parameter("0.weight").untyped_storage().nbytes() == 64 * 64 * 4


@pytest.mark.parametrize(
    "read",
    [
        lambda model: model[0].weight + 1,
        lambda model: model[0].weight[0],
        lambda model: model[0].weight.tolist(),
        lambda model: model[0].weight.data,
        lambda model: model[0].weight.data_ptr(),
        lambda model: model(X),
        lambda model: copy.deepcopy(model)(X),
        lambda model: torch.save(model.state_dict(), "/dev/null"),
    ],
    ids=["add", "index", "tolist", "data", "data_ptr", "call", "call of a copy", "save"],
)
def test_reading_a_released_tensor_is_an_error_with_its_name(read):
    with pytest.raises(thunder.RequirementNotMet, match=r"the values of '0\.weight' were released"):
        read(both()[0])


def test_copies_conversions_and_loading():
    _, compiled, other = both()
    twin = copy.deepcopy(compiled)
    assert torch.equal(twin(X), other(X))
    assert torch.equal(compiled.double()(X.double()), other.double()(X.double()))
    state = {name: 3 * t for name, t in two_layers().state_dict().items()}
    twin.load_original_state_dict(state)
    torch.testing.assert_close(dict(twin.original_state_dict()), state)


def test_tied_tensors_are_released_together():
    model = Tied()
    compiled = thunder.jit(model, transforms=[Released()])
    expected = thunder.jit(copy.deepcopy(Tied()), transforms=[Halved()])
    expected.load_state_dict(compiled.state_dict())
    assert torch.equal(compiled(X), expected(X))


def test_only_overridden_tensors_can_be_released():
    compiled = thunder.jit(two_layers(), transforms=[Halved()])
    for name in ("0.bias", "nothing"):
        with pytest.raises(thunder.InvalidArgument, match=f"release_original..{name}"):
            compiled.release_original(name)
