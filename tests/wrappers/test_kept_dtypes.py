"""`override(name, tensor, keep_dtype=True)`: conversions move the tensor and leave its values as they are."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import thunder


class Scaled(thunder.Transform):
    """Adds a scale whose values bfloat16 does not have."""

    def transform_module(self, model):
        model.override("weight.scale", torch.tensor([1.0001, 3.0001]), keep_dtype=True)
        model.override("weight.other", torch.tensor([1.0001]))


def scaled():
    return thunder.jit(nn.Linear(2, 2), transforms=[Scaled()])


@pytest.mark.parametrize(
    "convert", [lambda m: m.to(torch.bfloat16), lambda m: m.half(), lambda m: m.double()]
)
@pytest.mark.parametrize("copied", [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_conversion_leaves_the_values(convert, copied):
    module = convert(copied(scaled()))
    assert torch.equal(module.overrides["weight.scale"], torch.tensor([1.0001, 3.0001]))
    assert module.overrides["weight.other"].dtype == module.get_parameter("weight").dtype != torch.float32


def test_a_move_to_another_device_moves_it():
    assert scaled().to("meta").overrides["weight.scale"].is_meta


def test_a_later_override_without_it_is_converted():
    module = scaled()
    module.override("weight.scale", torch.ones(2))
    assert module.half().overrides["weight.scale"].dtype is torch.float16


def test_a_later_transform_that_only_replaces_the_tensor_leaves_it():
    class Copied(thunder.Transform):
        def transform_module(self, model):
            model.override("weight.scale", model.overrides["weight.scale"].clone())

    module = thunder.jit(nn.Linear(2, 2), transforms=[Scaled(), Copied()])
    assert module.half().overrides["weight.scale"].dtype is torch.float32
