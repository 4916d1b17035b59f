"""Models on the meta device are stored in few bits before they are allocated, with adapters or without."""

from __future__ import annotations

import itertools

import pytest
import torch
from safetensors.torch import save_file
from torch import nn
from torch.profiler import ProfilerActivity, profile

import thunder
from bnb.quantised_modules import TRANSFORMS, compiled, network
from thunder.transforms.quantization import BitsAndBytesLinearQuant4bit, get_bitsandbytes_executor
from thunder_transforms.lora import LORATransform
from thunder_transforms.materialization import MaterializationTransform

X = torch.linspace(-1, 1, 256).view(2, 128)


def empty() -> nn.Sequential:
    with torch.device("meta"):
        return network()


def materialised(*transforms: thunder.Transform) -> thunder.ThunderModule:
    return thunder.jit(empty(), transforms=transforms, executors=get_bitsandbytes_executor())


@pytest.mark.parametrize("kind", TRANSFORMS)
def test_weights_from_either_state_dict_are_those_of_a_model_with_values(kind: str):
    expected = compiled(kind, network())
    original = MaterializationTransform.init_from_original_state_dict(network().state_dict())
    transformed = MaterializationTransform.init_from_transformed_state_dict(expected.state_dict())
    for init in (original, transformed):
        module = materialised(TRANSFORMS[kind](), MaterializationTransform("cpu", init=init))
        assert torch.equal(module(X), expected(X))
        assert all(torch.equal(module.state_dict()[n], t) for n, t in expected.state_dict().items())
    assert all(p.is_meta for p in module._model.parameters())


def test_the_initialisation_of_the_module_itself():
    torch.manual_seed(0)
    init = MaterializationTransform.init_from_original_module_init()
    module = materialised(TRANSFORMS["nf4"](), MaterializationTransform("cpu", init=init))
    assert torch.equal(module(X), compiled("nf4", network())(X))


def test_statistics_keep_their_dtype_after_they_were_allocated():
    init = MaterializationTransform.init_from_original_state_dict(network().state_dict())
    module = materialised(TRANSFORMS["nf4"](), MaterializationTransform("cpu", init=init)).bfloat16()
    assert torch.equal(module(X.bfloat16()), compiled("nf4", network()).bfloat16()(X.bfloat16()))
    assert module.overrides["0.weight.absmax"].dtype is torch.float32


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (1, 2, 0)], ids=str)
def test_adapters_storage_and_materialisation(order: tuple[int, ...]):
    init = MaterializationTransform.init_from_original_state_dict(network().state_dict())
    parts = [LORATransform(r=2), TRANSFORMS["nf4"](), MaterializationTransform("cpu", init=init)]
    module = materialised(*(parts[i] for i in order))
    assert torch.equal(module(X), compiled("nf4", network())(X))  # B is 0
    module(X).sum().backward()
    grads = {n: p.grad is not None for n, p in module.named_parameters() if p.requires_grad}
    assert list(grads.values()) == [True] * 4


def peak_bytes(make):
    """Return a result, and the largest number of bytes that torch has allocated while `make` runs."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = make()
    memory = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    return result, max(itertools.accumulate(e.nbytes() for e in sorted(memory, key=lambda e: e.start_ns())))


def test_the_model_in_full_precision_is_never_allocated_as_a_whole(tmp_path):
    def deep() -> nn.Sequential:
        return nn.Sequential(*(nn.Linear(512, 512, bias=False) for _ in range(24))).requires_grad_(False)

    path = tmp_path / "weights.safetensors"
    save_file(deep().state_dict(), path)
    with torch.device("meta"):
        model = deep()
    transforms = [BitsAndBytesLinearQuant4bit(), MaterializationTransform("cpu", init=path)]
    module, peak = peak_bytes(lambda: thunder.jit(model, transforms=transforms))
    in_use = sum(t.nbytes for t in module.state_dict().values())
    full, one = sum(p.nbytes for p in model.parameters()), 4 * 512 * 512
    assert in_use < 0.15 * full
    # mapped files are not counted by torch; quantising needs some copies of one weight
    assert peak < in_use + 6 * one < 0.4 * full
