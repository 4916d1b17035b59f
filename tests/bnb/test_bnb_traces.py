"""The printed trace, stored tensors and ledger of a quantised module; what cannot be quantised and why."""

from __future__ import annotations

import copy
import re

import pytest
import torch
from torch import nn

import thunder
import thunder_bnb.library
from bnb.quantised_modules import compiled, network
from llama import Llama, LlamaConfig
from thunder.core.errors import ExecutorUnavailable, InvalidArgument, UnsupportedProgram
from thunder.transforms.quantization import (
    BitsAndBytesLinearQuant4bit,
    BitsAndBytesLinearQuant8bit,
    get_bitsandbytes_executor,
    get_bitsandbytes_exeucutor,
)
from thunder_bnb.operators import MATMUL
from thunder_transforms.lora import LORATransform


def mlp() -> nn.Sequential:
    """The module of the tutorial."""
    torch.manual_seed(0)
    layers = nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 2)
    return nn.Sequential(*layers).requires_grad_(False).eval()


#: what the tutorial prints, apart from the device, names of values, and lines of torch and this package
TUTORIAL = """
def computation(input, t_0_bias, t_0_weight, t_2_bias, t_2_weight, t_0_weight_absmax, t_0_weight_code, t_2_weight_absmax, t_2_weight_code):
  # input: "cpu f32[1, 512]"
  # t_0_bias: "cpu f32[1024]"
  # t_0_weight: "cpu ui8[262144, 1]"
  # t_2_bias: "cpu f32[2]"
  # t_2_weight: "cpu ui8[1024, 1]"
  # t_0_weight_absmax: "cpu f32[8192]"
  # t_0_weight_code: "cpu f32[16]"
  # t_2_weight_absmax: "cpu f32[32]"
  # t_2_weight_code: "cpu f32[16]"
  A = bnb_matmul_nf4(input, t_0_weight, t_0_bias, t_0_weight_absmax, t_0_weight_code, 64, torch.float32, (1024, 512))  # A: "cpu f32[1, 1024]"
  del input, t_0_weight, t_0_bias, t_0_weight_absmax, t_0_weight_code
  B = torch.nn.functional.gelu(A, approximate='none')  # B: "cpu f32[1, 1024]"
  del A
  C = bnb_matmul_nf4(B, t_2_weight, t_2_bias, t_2_weight_absmax, t_2_weight_code, 64, torch.float32, (2, 1024))  # C: "cpu f32[1, 2]"
  del B, t_2_weight, t_2_bias, t_2_weight_absmax, t_2_weight_code
  return C
"""  # noqa: E501


def statements(trace: thunder.core.trace.TraceCtx) -> str:
    """The text of a trace from `def` on, without source lines and subsymbols, with values named A, B, …"""
    text = str(trace)
    lines = [
        line
        for line in text[text.index("def ") :].splitlines()
        if line.strip() and not re.match(r"    +#|  # /", line)
    ]
    text = "\n".join(lines)
    for letter, name in zip("ABC", dict.fromkeys(re.findall(r"\bt\d+\b", text)), strict=False):
        text = re.sub(rf"\b{name}\b", letter, text)
    return text


def test_the_trace_is_that_of_the_tutorial():
    bnb_executor = get_bitsandbytes_exeucutor()
    module = thunder.jit(mlp(), transforms=[BitsAndBytesLinearQuant4bit()], executors=(bnb_executor))
    out = module(torch.randn(1, 512))
    assert out.shape == (1, 2)
    assert statements(thunder.last_traces(module)[-1]) == TUTORIAL.strip()
    calls = [row for row in thunder.explain(module).rows if row.symbol == "quant_bnb.bnb_matmul_nf4"]
    assert [(row.claimed_by, row.source.line > 0) for row in calls] == [("quant_bnb", True)] * 2


def test_without_the_executor_in_the_list_the_operators_run_all_the_same():
    model, x = mlp(), torch.randn(1, 512)
    module = thunder.jit(model, transforms=BitsAndBytesLinearQuant4bit())
    assert torch.equal(module(x), compiled("nf4", model)(x))


def test_the_executor_is_one_object_that_is_found_by_name():
    assert get_bitsandbytes_executor() is get_bitsandbytes_executor() is thunder.get_executor("quant_bnb")
    assert thunder.transforms.BitsAndBytesLinearQuant4bit is BitsAndBytesLinearQuant4bit
    assert thunder.transforms.BitsAndBytesLinearQuant8bit is BitsAndBytesLinearQuant8bit


def test_a_parametrised_weight_is_not_computed():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(8, 8)), nn.Linear(8, 8))
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    thunder.jit(model.requires_grad_(False), transforms=[BitsAndBytesLinearQuant4bit()])
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())


class Doubling(nn.Linear):
    def forward(self, x):
        result = super().forward(x)
        self.weight.data = self.weight.data * 2
        return result


def test_a_program_that_assigns_the_memory_of_a_stored_weight_is_refused():
    model = nn.Sequential(Doubling(8, 8)).requires_grad_(False)
    module = thunder.jit(model, transforms=[BitsAndBytesLinearQuant4bit()])
    with pytest.raises(UnsupportedProgram, match="assigns the memory of 0"):
        module(torch.ones(1, 8))


class Adding(nn.Linear):
    def forward(self, x):
        self.weight.add_(1)
        return super().forward(x)


def test_a_program_that_writes_to_a_stored_weight_is_refused_with_the_option_that_leaves_it():
    model = nn.Sequential(Adding(8, 8)).requires_grad_(False)
    with pytest.raises(UnsupportedProgram, match=r"writes to 0\.weight") as error:
        thunder.jit(model, transforms=[BitsAndBytesLinearQuant4bit()])(torch.ones(1, 8))
    assert "skip=" in str(error.value.hint)
    module = thunder.jit(model, transforms=[BitsAndBytesLinearQuant4bit(skip="0")])
    assert module(torch.ones(1, 8)).shape == (1, 8)


def test_stored_tensors_are_buffers_and_frozen_parameters_and_the_module_keeps_its_own():
    model = network()
    before = copy.deepcopy(model.state_dict())
    module = compiled("nf4", model)
    assert {n: (str(p.dtype), tuple(p.shape)) for n, p in module.named_parameters() if "weight" in n} == {
        "0.weight": ("torch.uint8", (16384, 1)),
        "2.weight": ("torch.uint8", (1280, 1)),
    }
    names = ["0.weight.absmax", "0.weight.code", "2.weight.absmax", "2.weight.code"]
    assert [name for name, _ in module.named_buffers()] == names
    assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in before.items())


def test_a_conversion_moves_statistics_and_does_not_round_them():
    model, x = network(), torch.randn(3, 128)
    absmax = compiled("nf4", model).overrides["0.weight.absmax"].clone()
    module = compiled("nf4", copy.deepcopy(model)).to(torch.bfloat16)
    assert torch.equal(module.overrides["0.weight.absmax"], absmax)
    weights = compiled("nf4", model).original_state_dict()
    plain = copy.deepcopy(model).bfloat16()
    plain.load_state_dict(weights)
    out = module(x.bfloat16())
    assert out.dtype is torch.bfloat16
    assert torch.equal(out, plain(x.bfloat16()))
    assert module.original_state_dict()["0.weight"].dtype is torch.bfloat16


def test_release_drops_the_original_weights():
    model, x = network(), torch.randn(3, 128)
    expected = compiled("nf4", network())(x)
    module = compiled("nf4", model, release=True)
    assert torch.equal(module(x), expected)
    with pytest.raises(thunder.RequirementNotMet, match=r"values of '0\.weight' were released"):
        model(x)


class Odd(nn.Module):
    """Layers that cannot be stored in 4 bits, each for another reason, and one that can."""

    def __init__(self):
        super().__init__()
        self.trained = nn.Linear(8, 4)
        self.odd = nn.Linear(3, 3)
        self.wide = nn.Linear(8, 4, dtype=torch.float64)
        self.embedding, self.head = nn.Embedding(4, 8), nn.Linear(8, 4, bias=False)
        self.head.weight = self.embedding.weight
        self.normed = nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))
        self.skipped, self.stored = nn.Linear(8, 4), nn.Linear(8, 4)
        self.requires_grad_(False).trained.requires_grad_(True)

    def forward(self, x):
        rows = self.embedding(torch.arange(4)).sum()
        y = self.trained(x) + self.head(x) + self.normed(x) + self.skipped(x) + self.stored(x) + rows
        return y + self.wide(x.double()).float() + self.odd(x[:, :3]).sum(1, keepdim=True)


def test_what_cannot_be_stored_is_left_alone_and_the_ledger_says_why():
    torch.manual_seed(0)
    model, x = Odd(), torch.randn(2, 8)
    module = compiled("nf4", model, skip="skip*")
    plain = copy.deepcopy(model)
    plain.stored.weight.data = module.original_state_dict()["stored.weight"]
    torch.testing.assert_close(module(x), plain(x))
    explanation = thunder.explain(module)
    assert {tensor.name: tensor.code for tensor in explanation.unchanged} == {
        "trained.weight": "requires_grad",
        "odd.weight": "shape",
        "wide.weight": "dtype",
        "head.weight": "tied",
        "normed.weight": "parameter",
        "skipped.weight": "skip",
    }
    text = (
        "unchanged by BitsAndBytesLinearQuant4bit: wide.weight: what is stored is in float32, bfloat16 "
        "or float16 (dtype=torch.float64)"
    )
    assert text in str(explanation).splitlines()
    assert '"code": "tied"' in explanation.to_json()


def test_a_weight_beyond_float16_is_left_alone_in_int8():
    model = network()
    model[2].weight[0, 0] = 1e6
    module = compiled("int8", model)
    module(torch.randn(2, 128))
    assert [(t.name, t.code) for t in thunder.explain(module).unchanged] == [("2.weight", "range")]


def test_layers_that_share_a_weight_share_what_is_stored():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 64, bias=False))
    model[2].weight = model[0].weight
    module, x = compiled("nf4", model.requires_grad_(False)), torch.randn(2, 64)
    plain = copy.deepcopy(model)
    plain.load_state_dict(module.original_state_dict())
    torch.testing.assert_close(module(x), plain(x))
    assert module.overrides["0.weight"] is module.overrides["2.weight"]
    assert [n for n in module.overrides if n.endswith("absmax")] == ["0.weight.absmax"]
    assert str(thunder.last_traces(module)[-1]).count("bnb_matmul_nf4") == 2


@pytest.mark.parametrize("skip", ["0", "2"])
def test_a_weight_stays_as_it_is_if_one_of_its_layers_is_skipped(skip: str):
    model = nn.Sequential(nn.Linear(64, 64, bias=False), nn.ReLU(), nn.Linear(64, 64, bias=False))
    model[2].weight = model[0].weight
    with pytest.warns(UserWarning, match="stores no weight"):
        module = compiled("nf4", model.requires_grad_(False), skip=skip)
    assert torch.equal(module(torch.ones(2, 64)), model(torch.ones(2, 64)))
    assert [t.code for t in thunder.explain(module).unchanged] == ["skip", "skip"]


def test_a_tied_head_of_a_language_model_is_left_alone():
    model = Llama(LlamaConfig(layers=1, width=32, heads=2, hidden=64)).requires_grad_(False)
    module = compiled("nf4", model)
    module(torch.arange(5)[None])
    assert [t.name for t in thunder.explain(module).unchanged] == ["head.weight"]
    assert str(thunder.last_traces(module)[-1]).count("bnb_matmul_nf4") == 7


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"quant_type": "nf5"}, "quant_type='nf5' is not a type"),
        ({"blocksize": 48}, "blocksize=48 is not one of"),
        ({"skip": "fc"}, r"skip='fc' is not the name of a linear layer(.|\n)*0, 2"),
    ],
)
def test_wrong_arguments_are_errors(arguments: dict[str, object], text: str):
    with pytest.raises(InvalidArgument, match=text):
        thunder.jit(network(), transforms=BitsAndBytesLinearQuant4bit(**arguments))


def test_a_function_has_no_weights_to_store():
    with pytest.raises(InvalidArgument, match=r"stores the weights of a module, and .* is not one"):
        thunder.jit(torch.sin, transforms=BitsAndBytesLinearQuant4bit())


@pytest.mark.parametrize(("version", "text"), [(None, "is not installed"), ("0.49.2", "has other kernels")])
def test_without_bitsandbytes_the_error_says_what_to_install(monkeypatch, version: str | None, text: str):
    def found(name: str) -> str:
        if version is None:
            raise thunder_bnb.library.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(thunder_bnb.library, "version", found)
    thunder_bnb.library.library.cache_clear()
    text = rf"bitsandbytes .*{text}(.|\n)*pip install 'bitsandbytes>=0\.50,<0\.51'"
    with pytest.raises(ExecutorUnavailable, match=text):
        thunder.jit(network(), transforms=BitsAndBytesLinearQuant4bit())
    with pytest.raises(ExecutorUnavailable, match=text):
        get_bitsandbytes_executor()
    thunder_bnb.library.library.cache_clear()


def test_the_recipe_quantises():
    model, x = network(), torch.randn(2, 128)
    module = thunder.compile(model, plugins="quantize-int4")
    assert torch.equal(module(x), compiled("nf4", model)(x))
    assert str(thunder.last_traces(module)[-1]).count("bnb_matmul_nf4") == 2


def test_a_module_that_is_not_frozen_is_an_error_with_what_to_do():
    model = network().requires_grad_(True)
    with pytest.raises(InvalidArgument, match="would store no weight") as error:
        thunder.jit(model, transforms=[BitsAndBytesLinearQuant4bit(), LORATransform(r=2)])
    assert "model.requires_grad_(False) first, or put a transform that freezes them" in str(error.value)
    adapted = thunder.jit(model, transforms=[LORATransform(r=2), BitsAndBytesLinearQuant4bit()])
    assert adapted.get_parameter("0.weight").dtype is torch.uint8


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"absmax": torch.float64}, r"absmax of a stored weight is torch\.float64, \(512,\)"),
        ({"x": torch.float64}, r"x of a product with a weight \(256, 128\) is torch\.float64"),
        ({"bias": torch.bfloat16}, r"bias of a stored weight is torch\.bfloat16"),
        ({"blocksize": -64}, "has blocks of a size of bitsandbytes"),
        ({"shape": (256, 64)}, r"qweight of a stored weight is torch\.uint8, \(16384, 1\)"),
    ],
)
def test_the_kernels_get_only_what_they_can_read(change: dict[str, object], text: str):
    module = compiled("nf4", network())
    stored = module.overrides
    call = {"x": torch.ones(2, 128), "qweight": stored["0.weight"], "bias": module.get_parameter("0.bias")}
    call |= {"absmax": stored["0.weight.absmax"], "quant_map": stored["0.weight.code"], "blocksize": 64}
    call |= {"dtype": torch.float32, "shape": (256, 128)}
    for name, value in change.items():
        call[name] = call[name].to(value) if isinstance(value, torch.dtype) else value
    program = thunder.jit(lambda call: MATMUL["nf4"](**call))
    with pytest.raises(InvalidArgument, match=text):
        program(call)
