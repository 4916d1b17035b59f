"""QLoRA: adapters of stored weights are trained, in either order of the transforms."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
from bnb.quantised_modules import TRANSFORMS, network
from thunder.extend import EagerStrides, FusionExecutor, evaluate_region
from thunder.plugins import get_manager
from thunder.transforms.quantization import BitsAndBytesLinearQuant8bit, get_bitsandbytes_executor


def qlora(kind: str, *, adapters_first: bool = True) -> thunder.ThunderModule:
    transforms = [thunder.transforms.LORATransform(r=4, lora_alpha=16), TRANSFORMS[kind]()]
    torch.manual_seed(2)
    order = transforms if adapters_first else transforms[::-1]
    return thunder.jit(network(), transforms=order, executors=get_bitsandbytes_executor())


def trained(module: nn.Module, adapters: list[nn.Parameter]) -> list[float]:
    torch.manual_seed(3)
    x = torch.randn(32, 128)
    target = torch.sin(x[:, :10])
    optimizer, losses = torch.optim.Adam(adapters, lr=1e-2), []
    for _ in range(25):
        loss = (module(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Adapted(nn.Module):
    """The eager counterpart: dequantised weights that are frozen, and adapters."""

    def __init__(self, module: thunder.ThunderModule, plain: nn.Sequential):
        super().__init__()
        self.layers = plain
        names = ["0.weight.lora_a", "0.weight.lora_b", "2.weight.lora_a", "2.weight.lora_b"]
        self.adapters = nn.ParameterList(module.overrides[name].detach().clone() for name in names)

    def forward(self, x):
        a0, b0, a2, b2 = self.adapters
        first, _, last = self.layers
        x = nn.functional.gelu(first(x) + 16 / 4 * (x @ a0.t() @ b0.t()))
        return last(x) + 16 / 4 * (x @ a2.t() @ b2.t())


@pytest.mark.parametrize("kind", ["nf4", "nf4 twice", "int8"])
def test_qlora_trains_the_adapters_alone_as_eager_does(kind: str):
    module = qlora(kind)
    trainable = [n for n, p in module.named_parameters() if p.requires_grad]
    assert len(trainable) == 4
    stored = {n: t.clone() for n, t in module.overrides.items() if "lora" not in n}
    plain = network()
    plain.load_state_dict(module.original_state_dict())  # with the adapters, whose B is 0
    eager = Adapted(module, plain)
    losses = trained(module, [module.overrides[name] for name in trainable])
    assert losses[-1] < 0.5 * losses[0]
    if kind != "int8":  # its products round their inputs
        assert losses == pytest.approx(trained(eager, list(eager.adapters)), rel=1e-3)
    assert all(torch.equal(module.overrides[name], tensor) for name, tensor in stored.items())
    assert thunder.cache_misses(module) == 1


def test_the_order_of_adapters_and_storage_does_not_matter():
    first, second = qlora("nf4"), qlora("nf4", adapters_first=False)
    assert first.overrides.keys() == second.overrides.keys()
    x = torch.randn(3, 128)
    assert torch.equal(first(x), second(x))
    for module in (first, second):
        assert str(thunder.last_traces(module)[-1]).count("bnb_matmul_nf4") == 2


def test_no_dequantised_weight_is_kept_for_the_backward():
    module, x = qlora("nf4"), torch.randn(3, 128, requires_grad=True)
    saved: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.numel()) or t, lambda t: t):
        module(x).sum().backward()
    assert 256 * 128 not in saved
    backward = str(thunder.last_backward_traces(module)[-1])
    assert backward.count("bnb_dequantize_nf4") == 2


class Regions(FusionExecutor):
    """Fuses what is not a product, and computes regions by torch."""

    def fuse(self, region, fusion_counter):
        strides = EagerStrides(region)
        run = lambda *tensors: strides.apply(evaluate_region(region, tensors), tensors)  # noqa: E731
        return self.register_temporary_operation(
            f"region{fusion_counter}", run, inputs=region.inputs, outputs=region.outputs, bsyms=region.bsyms
        )


def test_a_fusion_executor_fuses_what_is_between_products():
    regions = Regions("regions")
    for name in ("torch.nn.functional.gelu", "torch.mul", "torch.add"):
        regions.register_supported(name)
    model, x = nn.Sequential(*network(), nn.GELU()), torch.randn(3, 128)
    executors = [get_bitsandbytes_executor(), regions]
    fused = thunder.jit(model, transforms=TRANSFORMS["nf4"](), executors=executors)
    assert torch.equal(fused(x), thunder.jit(model, transforms=TRANSFORMS["nf4"]())(x))
    names = [bsym.sym.name for bsym in thunder.last_traces(fused)[-1].bound_symbols]
    called = [name for name in names if not name.startswith("python")]
    assert called == ["bnb_matmul_nf4", "region0", "bnb_matmul_nf4", "region1"]


@pytest.mark.sweep
def test_inductor_compiles_what_is_between_products():
    thunder_inductor = pytest.importorskip("thunder_inductor")
    with get_manager().temporary(thunder_inductor, name="inductor-under-test"):
        model, x = network(), torch.randn(3, 128)
        executors = [get_bitsandbytes_executor(), "inductor"]
        gated = nn.Sequential(*model, nn.GELU(), nn.Softmax(-1))
        fused = thunder.jit(gated, transforms=TRANSFORMS["nf4"](), executors=executors)
        expected = thunder.jit(gated, transforms=TRANSFORMS["nf4"]())(x)
        torch.testing.assert_close(fused(x), expected)
        text = str(thunder.last_traces(fused)[-1])
        assert text.count("bnb_matmul_nf4") == 2
        assert "InductorFusion" in text


@pytest.mark.parametrize("adapters_first", [True, False])
@pytest.mark.parametrize("kind", ["nf4", "nf4 twice", "int8"])
def test_the_original_state_dict_has_the_trained_adapters_folded_in(kind: str, *, adapters_first: bool):
    module = qlora(kind, adapters_first=adapters_first)
    trained(module, [p for p in module.parameters() if p.requires_grad])
    plain, x = network(), torch.randn(3, 128)
    plain.load_state_dict(module.original_state_dict())
    tolerance = 0.05 if kind == "int8" else 1e-4  # its products round their inputs
    torch.testing.assert_close(module(x), plain(x), rtol=tolerance, atol=tolerance)
    assert not torch.allclose(plain(x), qlora(kind)(x), atol=0.2)


class OneWay(BitsAndBytesLinearQuant8bit):
    """A storage whose state dicts cannot be reversed."""

    def reverse_transform_state_dict_for_submodule(self, model, submodule_name, state_dict):
        return state_dict


def test_adapters_of_a_weight_that_stays_in_another_form_are_not_folded_in():
    transforms = [OneWay(), thunder.transforms.LORATransform(r=4)]
    module = thunder.jit(network(), transforms=transforms, executors=get_bitsandbytes_executor())
    torch.nn.init.ones_(module.overrides["0.weight.lora_b"])
    text = r"0\.weight cannot be folded in(.|\n)*torch\.int8(.|\n)*must return the weight"
    with pytest.raises(thunder.InvalidArgument, match=text):
        module.original_state_dict()


@pytest.mark.parametrize("kind", ["nf4", "int8"])
@pytest.mark.parametrize("adapters_first", [True, False])
def test_adapters_are_not_merged_into_stored_weights(kind: str, *, adapters_first: bool):
    lora = thunder.transforms.LORATransform(r=4)
    transforms = [lora, TRANSFORMS[kind]()] if adapters_first else [TRANSFORMS[kind](), lora]
    module = thunder.jit(network(), transforms=transforms, executors=get_bitsandbytes_executor())
    with pytest.raises(
        thunder.InvalidArgument, match=r"cannot be folded in(.|\n)*original_state_dict\(\) has"
    ):
        lora.merge(module)
