"""The trace of a quantised model as users read it: arguments, statements, releases."""

from __future__ import annotations

import re

import pytest
import torch

import thunder
from thunder.transforms.quantization import BitsAndBytesLinearQuant4bit, get_bitsandbytes_executor

PLAIN = """\
def computation(input, t_0_bias, t_0_weight, t_2_bias, t_2_weight):
  # input: "D f32[1, 128]"
  # t_0_bias: "D f32[256]"
  # t_0_weight: "D f32[256, 128]"
  # t_2_bias: "D f32[6]"
  # t_2_weight: "D f32[6, 256]"
  a = torch.nn.functional.linear(input, t_0_weight, t_0_bias)  # a: "D f32[1, 256]"
  del input, t_0_weight, t_0_bias
  b = torch.nn.functional.gelu(a, approximate='none')  # b: "D f32[1, 256]"
  del a
  c = torch.nn.functional.linear(b, t_2_weight, t_2_bias)  # c: "D f32[1, 6]"
  del b, t_2_weight, t_2_bias
  return c"""

QUANTISED = """\
def computation(input, t_0_bias, t_0_weight, t_2_bias, t_2_weight, t_0_weight_absmax, t_0_weight_code, \
t_2_weight_absmax, t_2_weight_code):
  # input: "D f32[1, 128]"
  # t_0_bias: "D f32[256]"
  # t_0_weight: "D ui8[16384, 1]"
  # t_2_bias: "D f32[6]"
  # t_2_weight: "D ui8[768, 1]"
  # t_0_weight_absmax: "D f32[512]"
  # t_0_weight_code: "D f32[16]"
  # t_2_weight_absmax: "D f32[24]"
  # t_2_weight_code: "D f32[16]"
  a = bnb_matmul_nf4(input, t_0_weight, t_0_bias, t_0_weight_absmax, t_0_weight_code, 64, torch.float32, \
(256, 128))  # a: "D f32[1, 256]"
  del input, t_0_weight, t_0_bias, t_0_weight_absmax, t_0_weight_code
  b = torch.nn.functional.gelu(a, approximate='none')  # b: "D f32[1, 256]"
  del a
  c = bnb_matmul_nf4(b, t_2_weight, t_2_bias, t_2_weight_absmax, t_2_weight_code, 64, torch.float32, \
(6, 256))  # c: "D f32[1, 6]"
  del b, t_2_weight, t_2_bias, t_2_weight_absmax, t_2_weight_code
  return c"""


def structure(compiled: object) -> str:
    """The statements of the trace that runs, without lines of source and of decompositions.

    The device is D, and intermediates are a, b and c.
    """
    text = str(thunder.last_traces(compiled)[-1])
    text = re.sub(r'"(cpu|cuda:0) ', '"D ', text[text.index("def computation") :])
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    text = "\n".join(line for line in lines if not re.match(r" {4,}#|  # [\w/.-]+\.py:", line))
    for letter, name in zip("abc", dict.fromkeys(re.findall(r"\bt\d+\b", text)), strict=True):
        text = re.sub(rf"\b{name}\b", letter, text)
    return text


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_quantised_weights_are_further_arguments_of_the_same_program(device: str) -> None:
    with torch.device(device):
        model = torch.nn.Sequential(torch.nn.Linear(128, 256), torch.nn.GELU(), torch.nn.Linear(256, 6))
        x = torch.randn(1, 128)
    model.requires_grad_(False).eval()
    plain = thunder.jit(model)
    plain(x)
    assert structure(plain) == PLAIN
    # one executor and one transform need no list
    quantised = thunder.jit(
        model, transforms=BitsAndBytesLinearQuant4bit(), executors=(get_bitsandbytes_executor())
    )
    assert torch.allclose(quantised(x), model(x), atol=0.2)
    assert structure(quantised) == QUANTISED
    last = str(thunder.last_traces(quantised)[-1])
    assert "@torch.no_grad()\n@no_autocast\ndef computation(" in last, "nothing requires grad"
