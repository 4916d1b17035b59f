"""A GPT on the meta device whose tensors declare where they are to be, with every form of `init`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder.tests import lit_gpt_model
from thunder_transforms.materialization import MaterializationTransform

FORMS = {
    "the short name": lambda weights: MaterializationTransform.from_original_state_dict(weights),
    "the long name": lambda weights: MaterializationTransform.init_from_original_state_dict(weights),
    "a state dict": lambda weights: weights,
}


def build(device: str) -> Any:
    with torch.device(device):
        return lit_gpt_model.GPT(lit_gpt_model.Config.from_name("llama2-like")).to(torch.bfloat16)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("form", FORMS)
def test_a_model_on_the_meta_device_computes_on_the_declared_one(form: str, device: str) -> None:
    trained, model = build(device), build("meta")
    for tensor in (*model.parameters(), *model.buffers()):
        tensor.__thunder_device = torch.device(device)
    init = FORMS[form](trained.state_dict())
    compiled = thunder.jit(model, transforms=MaterializationTransform(device, init=init))
    tokens = torch.randint(1, 255, (1, 6), device=device)
    positions = torch.arange(6, device=device)
    torch.testing.assert_close(compiled(tokens, positions), trained(tokens, positions))
    assert all(parameter.is_meta for parameter in model.parameters())
    assert {parameter.device.type for parameter in compiled.parameters()} == {device}
