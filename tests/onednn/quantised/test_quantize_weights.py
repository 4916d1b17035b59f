"""What the transform stores, how exactly, and what stays as it is."""

from __future__ import annotations

import copy
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

import thunder
from onednn.quantised.reference import calls, compiled_with, every_scheme, needs_blocks, needs_vnni, weight_of
from thunder.core.errors import InvalidArgument, RequirementNotMet
from thunder_onednn.quantised import four_bits
from thunder_onednn.quantised.quantize_weights import QuantizeWeights
from thunder_transforms.materialization import MaterializationTransform

every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
needs_avx512 = pytest.mark.skipif(four_bits.block_rows() != 64, reason="the CPU has no AVX-512")


def mlp(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    layers = nn.Linear(64, 128), nn.GELU(), nn.Linear(128, 64, bias=False)
    return nn.Sequential(*layers).requires_grad_(False).to(dtype)


@every_dtype
@every_scheme
def test_an_element_is_off_by_half_a_step_at_most(scheme, dtype):
    layer = nn.Linear(256, 64, bias=False).to(dtype)
    layer.weight[1] *= 1000
    layer.weight[2] = layer.weight[2].abs()
    compiled = compiled_with(layer, scheme)
    scale = compiled.state_dict()["weight.scale"].double()
    if scheme == "int4":
        step, middle = scale.repeat_interleave(64, 0).transpose(0, 1).unbind(-1)
        # the step and the middle are rounded too
        bound = 0.5 * step + torch.finfo(compiled.state_dict()["weight.scale"].dtype).eps * (
            middle.abs() + 8 * step
        )
    else:
        bound = 0.5 * scale[:, None]
    error = (weight_of(compiled) - layer.weight.double()).abs()
    assert (error <= bound * (1 + 1e-4)).all()


@every_dtype
@every_scheme
def test_the_original_state_dict_has_the_stored_weight_rounded_once(scheme, dtype):
    compiled = compiled_with(mlp(dtype), scheme)
    original = compiled.original_state_dict()
    assert {n: (t.shape, t.dtype) for n, t in original.items()} == {
        n: (t.shape, t.dtype) for n, t in mlp(dtype).state_dict().items()
    }
    for name in ("0.weight", "2.weight"):
        # float16 is rounded from float32
        torch.testing.assert_close(
            original[name].double(), weight_of(compiled, name), rtol=torch.finfo(dtype).eps, atol=1e-6
        )


@every_scheme
def test_an_original_state_dict_gives_what_compiling_gives(scheme):
    other = mlp()
    for p in other.parameters():
        p.copy_(torch.randn(p.shape))
    compiled = compiled_with(mlp(), scheme)
    compiled.load_original_state_dict(other.state_dict())
    expected = compiled_with(other, scheme)
    assert all(torch.equal(t, expected.state_dict()[n]) for n, t in compiled.state_dict().items())
    x = torch.ones(2, 64)
    assert torch.equal(compiled(x), expected(x))


@every_scheme
def test_a_saved_state_dict_is_loaded(scheme, tmp_path):
    first, second = (compiled_with(mlp(), scheme) for _ in range(2))
    torch.save(first.state_dict(), tmp_path / "state.pt")
    second.load_state_dict(torch.load(tmp_path / "state.pt"))
    x = torch.randn(3, 64)
    assert torch.equal(first(x), second(x))


OF_ANOTHER_CPU = """
import torch
from torch import nn
import thunder
from thunder_onednn.executor import executor
from thunder_onednn.quantised.quantize_weights import QuantizeWeights

assert torch.backends.cpu.get_cpu_capability() == "AVX2"
layer = nn.Linear(64, 64).requires_grad_(False).bfloat16()
compiled = thunder.jit(layer, transforms=[QuantizeWeights("int4", smallest=0)], executors=[executor()])
weight, x = compiled.original_state_dict()["weight"], torch.randn(3, 64).bfloat16()
torch.testing.assert_close(compiled(x), nn.functional.linear(x, weight, layer.bias), rtol=0.02, atol=0.02)
print("onednn_int4" in str(thunder.last_traces(compiled)[-1]), tuple(compiled.state_dict()["weight"].shape))
"""


@needs_avx512
def test_weights_in_four_bits_have_another_shape_on_a_cpu_with_other_instructions():
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}
    command = [sys.executable, "-c", OF_ANOTHER_CPU]
    printed = subprocess.run(command, env=environment, text=True, stdout=subprocess.PIPE, check=True).stdout
    assert printed == "True (2, 64, 16)\n"
    layer = compiled_with(nn.Linear(64, 64).bfloat16(), "int4")
    with pytest.raises(InvalidArgument, match=r"weight: \(2, 64, 16\) torch.uint8, in use \(1, 64, 32\)"):
        layer.load_state_dict(layer.state_dict() | {"weight": torch.zeros(2, 64, 16, dtype=torch.uint8)})


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, 128)
        self.odd, self.trained, self.small = nn.Linear(128, 60), nn.Linear(128, 64), nn.Linear(16, 16)
        self.infinite, self.named, self.head = nn.Linear(128, 64), nn.Linear(128, 64), nn.Linear(128, 128)
        self.short, self.stored = nn.Linear(64, 64), nn.Linear(128, 64)
        self.requires_grad_(False)
        self.trained.weight.requires_grad_(True)
        self.infinite.weight[0] = float("inf")
        self.head.weight = self.embedding.weight

    def forward(self, x):
        layers = [layer for layer in self.children() if isinstance(layer, nn.Linear)]
        return [layer(x[:, : layer.in_features]) for layer in layers]


@needs_blocks
def test_what_stays_as_it_is_is_in_the_ledger_with_the_reason():
    model = Model()
    transform = QuantizeWeights("int4", skip=["nam*"], smallest=500, group_size=128)
    compiled = thunder.jit(model, transforms=[transform], executors=["onednn"])
    compiled(torch.randn(2, 128))
    assert {name: refusal.code for name, refusal in transform.unchanged().items()} == {
        "odd.weight": "shape",
        "trained.weight": "requires_grad",
        "small.weight": "small",
        "infinite.weight": "range",
        "named.weight": "skip",
        "head.weight": "tied",
        "short.weight": "shape",
    }
    assert {tensor.name for tensor in thunder.explain(compiled).unchanged} == set(transform.unchanged())


def test_a_cpu_without_the_instructions_stores_nothing_in_four_bits(monkeypatch):
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "DEFAULT")
    transform = QuantizeWeights("int4")
    assert transform.refusal(torch.zeros(512, 512)).code == "device"
    assert QuantizeWeights("int8").refusal(torch.empty(512, 512, device="meta")) is None
    assert QuantizeWeights("int8").refusal(torch.ones(2, 2)).code == "small"


@every_scheme
def test_released_weights_are_gone_and_the_program_runs(scheme):
    model, x = mlp(), torch.randn(3, 64)
    expected = compiled_with(copy.deepcopy(model), scheme)(x)
    compiled = compiled_with(model, scheme, release=True)
    assert torch.equal(compiled(x), expected)
    with pytest.raises(RequirementNotMet, match=r"'0\.weight' were released"):
        model(x)


@every_scheme
def test_a_model_on_the_meta_device_is_stored_as_it_is_read(scheme):
    model, x = mlp(), torch.randn(3, 64)
    with torch.device("meta"):
        empty = mlp()
    init = MaterializationTransform.init_from_original_state_dict(model.state_dict())
    transforms = [QuantizeWeights(scheme, smallest=0), MaterializationTransform("cpu", init=init)]
    compiled = thunder.jit(empty, transforms=transforms, executors=["onednn"])
    assert torch.equal(compiled(x), compiled_with(model, scheme)(x))


class Otherwise(nn.Module):
    """Reads its weight in more ways than by a linear layer, under vmap too."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 64)
        self.requires_grad_(False)

    def forward(self, x):
        return torch.vmap(self.fc)(x), x @ self.fc.weight.t()


@every_scheme
def test_a_weight_that_is_read_elsewhere_is_computed_there(scheme):
    model, x = Otherwise(), torch.randn(3, 64)
    compiled = compiled_with(model, scheme)
    weight = compiled.original_state_dict()["fc.weight"]
    batched, product = compiled(x)
    assert torch.equal(product, x @ weight.t())
    torch.testing.assert_close(batched, x @ weight.t() + model.fc.bias, rtol=0.05, atol=0.05)


@every_scheme
def test_under_autocast_products_are_in_bfloat16(scheme):
    compiled, x = compiled_with(nn.Linear(64, 64), scheme), torch.randn(3, 64)
    weight, bias = compiled.original_state_dict().values()
    with torch.autocast("cpu", torch.bfloat16):
        y = compiled(x)
    assert y.dtype is torch.bfloat16
    torch.testing.assert_close(y.float(), x @ weight.t() + bias, rtol=0.05, atol=0.05)


@needs_vnni
def test_layers_may_have_different_schemes():
    model, x = mlp(torch.bfloat16), torch.randn(3, 64).bfloat16()
    transforms = [QuantizeWeights("int8", skip="2", smallest=0), QuantizeWeights(skip="0", smallest=0)]
    compiled = thunder.jit(model, transforms=transforms, executors=["onednn"])
    torch.testing.assert_close(compiled(x), model(x), rtol=0.05, atol=0.05)
    assert calls(compiled) == ["onednn_int8", "gelu", "onednn_int8_dynamic"]


def test_arguments_that_are_none_of_them():
    with pytest.raises(InvalidArgument, match=r"scheme='int3'.*(\n.*)*'int8-dynamic', 'int8', 'int4'"):
        QuantizeWeights("int3")
    with pytest.raises(InvalidArgument, match=r"group_size=48(.*\n)*.*32, 64, 128, 256"):
        QuantizeWeights("int4", group_size=48)
    with pytest.raises(InvalidArgument, match="not the name of a linear layer"):
        thunder.jit(mlp(), transforms=[QuantizeWeights(skip="haed")])(torch.randn(1, 64))


@needs_vnni
def test_the_plugin_of_recipes():
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 8)).requires_grad_(False).eval()
    compiled, x = thunder.compile(model, "inference", plugins="quantize-int8"), torch.randn(4, 256)
    torch.testing.assert_close(compiled(x), model(x), rtol=0.05, atol=0.05)
    assert calls(compiled) == ["kept0", "onednn_int8_dynamic", "relu", "linear"]
