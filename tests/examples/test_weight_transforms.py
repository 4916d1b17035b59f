"""The transforms of weights: results and gradients of eager, state dicts, copies, dtypes, later weights."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import thunder
from int8_weights import Int8Weights, quantised
from low_rank_adapters import LowRankAdapters
from nf4_weights import CODE, Nf4Weights, packed, unpacked

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
FILES = ("int8_weights.py", "low_rank_adapters.py", "nf4_weights.py")
TRANSFORMS = {
    "int8": lambda: [Int8Weights()],
    "nf4": lambda: [Nf4Weights()],
    "lora": lambda: [LowRankAdapters(r=2)],
    "lora on nf4": lambda: [LowRankAdapters(r=2), Nf4Weights()],
}
every_transform = pytest.mark.parametrize("kind", TRANSFORMS)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 11), nn.GELU(), nn.Linear(11, 3, bias=False))


def jitted(kind: str, model: nn.Module | None = None) -> tuple[nn.Module, thunder.ThunderModule]:
    """A module and its compiled form, with adapters that are not zero."""
    model = network() if model is None else model
    compiled = thunder.jit(model, transforms=TRANSFORMS[kind]())
    for name, tensor in compiled.overrides.items():
        if name.endswith("lora_b"):
            nn.init.normal_(tensor, std=0.1)
    return model, compiled


def merged(model: nn.Module, compiled: thunder.ThunderModule) -> nn.Module:
    """An eager module with the weights that the compiled one computes with."""
    eager = copy.deepcopy(model)
    eager.load_state_dict(compiled.original_state_dict())
    return eager


def inputs(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.linspace(-1, 1, 30, dtype=dtype).view(5, 6)


@pytest.mark.parametrize("file", FILES)
def test_a_transform_is_at_most_60_lines_of_code(file: str):
    assert len([line for line in (EXAMPLES / file).read_text().splitlines() if line.strip()]) <= 60


@every_transform
@pytest.mark.parametrize("grad", [True, False], ids=["training", "inference"])
def test_results_are_those_of_the_merged_weights_and_the_module_is_not_changed(kind: str, grad: bool):
    model, compiled = jitted(kind)
    before = {name: t.clone() for name, t in model.state_dict().items()}
    with torch.set_grad_enabled(grad):
        torch.testing.assert_close(compiled(inputs()), merged(model, compiled)(inputs()))
    assert model.state_dict().keys() == before.keys()
    assert all(torch.equal(model.state_dict()[name], t) for name, t in before.items())
    assert all(p.requires_grad for p in model.parameters())


@every_transform
def test_gradients_of_the_input_and_the_bias_are_those_of_the_merged_weights(kind: str):
    model, compiled = jitted(kind)
    eager, x = merged(model, compiled), inputs().requires_grad_()
    ours = torch.autograd.grad(compiled(x).square().sum(), [x, compiled.get_parameter("0.bias")])
    theirs = torch.autograd.grad(eager(x).square().sum(), [x, eager.get_parameter("0.bias")])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("kind", ["lora", "lora on nf4"])
def test_adapters_are_the_trained_parameters_and_get_the_gradients_of_their_product(kind: str):
    model, compiled = jitted(kind, network().requires_grad_(False))
    trained = {n: p for n, p in compiled.named_parameters() if p.requires_grad}
    assert sorted(trained) == [f"{i}.weight.lora_{c}" for i in (0, 2) for c in "ab"]
    compiled(inputs()).square().sum().backward()

    base, products, weights = merged(model, compiled).state_dict(), {}, {}
    for i in (0, 2):
        products[i] = a, b = [trained[f"{i}.weight.lora_{c}"].detach().requires_grad_() for c in "ab"]
        weights[f"{i}.weight"] = base[f"{i}.weight"] - (8 * b @ a).detach() + 8 * b @ a
    torch.func.functional_call(model, weights, inputs()).square().sum().backward()
    for i, expected in products.items():
        for c, value in zip("ab", expected, strict=True):
            torch.testing.assert_close(trained[f"{i}.weight.lora_{c}"].grad, value.grad)


def test_adapters_train_with_an_optimiser():
    _, compiled = jitted("lora")
    optimiser = torch.optim.SGD([p for p in compiled.parameters() if p.requires_grad], lr=0.01)
    losses = []
    for _ in range(20):
        loss = (compiled(inputs()) - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2
    assert thunder.cache_misses(compiled) == 1


@every_transform
def test_state_dicts_of_both_forms_are_loaded_and_seen_by_the_next_call(kind: str):
    model, compiled = jitted(kind)
    compiled(inputs())
    original = {name: t + 0.25 for name, t in model.state_dict().items()}
    compiled.load_original_state_dict(original)
    torch.testing.assert_close(compiled(inputs()), merged(model, compiled)(inputs()))
    assert compiled.original_state_dict().keys() == original.keys()
    other = thunder.jit(network(), transforms=TRANSFORMS[kind]())
    other(inputs())
    for assign in (False, True):
        for tensor in other.state_dict().values():
            tensor.zero_()
        state = copy.deepcopy(compiled.state_dict())
        other.load_state_dict(state, assign=assign)
        torch.testing.assert_close(other(inputs()), compiled(inputs()))
    assert thunder.cache_misses(compiled) == thunder.cache_misses(other) == 1


@every_transform
def test_a_copy_has_tensors_of_its_own(kind: str):
    _, compiled = jitted(kind)
    expected = compiled(inputs())
    twin = copy.deepcopy(compiled)
    torch.testing.assert_close(twin(inputs()), expected)
    with torch.no_grad():
        for tensor in twin.overrides.values():
            tensor.zero_()
    assert not torch.allclose(twin(inputs()), expected)
    torch.testing.assert_close(compiled(inputs()), expected)


@every_transform
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_compiled_module_that_is_moved_to_another_dtype_computes_in_it(kind: str, dtype: torch.dtype):
    model, compiled = jitted(kind)
    compiled(inputs())
    compiled.to(dtype)
    result = compiled(inputs(dtype))
    assert result.dtype == dtype
    eager = merged(model.to(dtype), compiled)
    torch.testing.assert_close(result, eager(inputs(dtype)), **(BFLOAT16 if dtype.itemsize == 2 else {}))


BFLOAT16 = {"rtol": 0.1, "atol": 0.05}


@pytest.mark.parametrize("kind", ["int8", "nf4"])
def test_the_unpacked_weights_are_not_saved_for_the_backward(kind: str):
    model, compiled = jitted(kind)
    compiled(inputs().requires_grad_())
    saved = {tuple(p.shape) for p in thunder.last_traces(compiled)[-1].output[1][0] if p.dtype.is_inexact}
    assert saved.isdisjoint({tuple(m.weight.shape) for m in model if isinstance(m, nn.Linear)})


@every_transform
def test_under_autocast_the_same_weights_are_read(kind: str):
    model, compiled = jitted(kind)
    eager = merged(model, compiled)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = compiled(inputs()), eager(inputs())
    assert ours.dtype == theirs.dtype == torch.bfloat16
    torch.testing.assert_close(ours, theirs, **BFLOAT16)
    assert not torch.allclose(ours, model(inputs()).to(ours), **BFLOAT16) or "lora" not in kind


def test_a_module_that_is_one_linear_layer_is_transformed():
    for kind in TRANSFORMS:
        model, compiled = jitted(kind, nn.Linear(6, 3))
        torch.testing.assert_close(compiled(inputs()), merged(model, compiled)(inputs()))


def test_the_error_of_quantised_weights_is_at_most_half_a_step():
    weight = network()[0].weight.detach()
    q, scale = quantised(weight)
    assert (q * scale - weight).abs().max() <= scale.max() / 2 * 1.0001
    stored, absmax = packed(weight)
    assert (stored.dtype, stored.shape, absmax.shape) == (torch.uint8, (64, 1), (2,))
    step = CODE.diff().max() / 2
    assert (unpacked(stored, absmax, CODE, weight.shape) - weight).abs().max() <= absmax.max() * step * 1.0001
    assert len(CODE) == 16
    assert CODE[7] == 0


def test_the_original_form_is_loaded_into_a_module_on_the_meta_device():
    model, x = network(), inputs()
    with torch.device("meta"):
        empty = network()
    compiled = thunder.jit(empty, transforms=[Int8Weights()])
    compiled.load_original_state_dict(model.state_dict(), assign=True)
    torch.testing.assert_close(compiled(x), thunder.jit(model, transforms=[Int8Weights()])(x))


def test_loading_into_a_tensor_on_the_meta_device_without_assigning_warns():
    with torch.device("meta"):
        empty = network()
    compiled = thunder.jit(empty, transforms=[Int8Weights()])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiled.load_original_state_dict(network().state_dict())
    texts = [str(warning.message) for warning in caught]
    assert [t.partition(":")[0] for t in texts if "no-op" in t and "weight" in t] == [
        f"for {name}" for name in ("0.weight", "0.weight.scale", "2.weight", "2.weight.scale")
    ], texts
