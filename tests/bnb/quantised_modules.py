"""Modules, their eager counterparts of bitsandbytes, and a plain dequantisation in float64."""

from __future__ import annotations

import bitsandbytes as bnb
import torch
from torch import nn

import thunder
from thunder.transforms.quantization import (
    BitsAndBytesLinearQuant4bit,
    BitsAndBytesLinearQuant8bit,
    get_bitsandbytes_executor,
)

TRANSFORMS = {
    "nf4": lambda **kw: BitsAndBytesLinearQuant4bit(**kw),
    "fp4 of 128": lambda **kw: BitsAndBytesLinearQuant4bit("fp4", blocksize=128, **kw),
    "nf4 twice": lambda **kw: BitsAndBytesLinearQuant4bit(double_quantization=True, **kw),
    "int8": lambda **kw: BitsAndBytesLinearQuant8bit(**kw),
    "int8 without outliers": lambda **kw: BitsAndBytesLinearQuant8bit(0.0, **kw),
}


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    layers = nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 10, bias=False)
    return nn.Sequential(*layers).requires_grad_(False).to(dtype)


def compiled(kind: str, model: nn.Module, **settings: object) -> thunder.ThunderModule:
    return thunder.jit(model, transforms=TRANSFORMS[kind](**settings), executors=get_bitsandbytes_executor())


def eager_layer(kind: str, layer: nn.Linear) -> nn.Module:
    """The layer as a module of bitsandbytes, which quantises as the transform of this kind does."""
    sizes, bias = (layer.in_features, layer.out_features), layer.bias is not None
    if kind.startswith("int8"):
        threshold = 0.0 if kind.endswith("outliers") else 6.0
        eager = bnb.nn.Linear8bitLt(*sizes, bias=bias, has_fp16_weights=False, threshold=threshold)
        eager.weight = bnb.nn.Int8Params(layer.weight.data.clone(), requires_grad=False)
    else:
        twice, quant_type = kind.endswith("twice"), kind[:3]
        eager = bnb.nn.Linear4bit(*sizes, bias=bias, compress_statistics=twice, quant_type=quant_type)
        weight = layer.weight.data.clone()
        eager.weight = bnb.nn.Params4bit(
            weight,
            blocksize=128 if kind.endswith("128") else 64,
            compress_statistics=twice,
            quant_type=quant_type,
            module=eager,
        )
    if bias:
        eager.bias = nn.Parameter(layer.bias.data.clone(), requires_grad=False)
    return eager.to("cpu")


def eager(kind: str, model: nn.Sequential) -> nn.Sequential:
    """The network in modules of bitsandbytes.

    Those of 4 bits are in training mode: in evaluation they convert weights on some CPUs to a layout whose
    kernel rounds to bfloat16. Those of 8 bits are in evaluation: in training they dequantise on a CPU.
    """
    layers = [eager_layer(kind, m) if isinstance(m, nn.Linear) else m for m in model]
    return nn.Sequential(*layers).train(not kind.startswith("int8"))


def in_float64(module: thunder.ThunderModule, name: str, kind: str) -> torch.Tensor:
    """The weight that a compiled module stores, computed in float64 from its stored tensors."""
    state = {n.removeprefix(f"{name}."): t for n, t in module.state_dict().items() if n.startswith(name)}
    stored, absmax = module.state_dict()[name], state["absmax"].double()
    if kind.startswith("int8"):
        return stored.double() * absmax[:, None] / 127
    if kind.endswith("twice"):
        scales = state["nested_absmax"].double().repeat_interleave(256)[: len(absmax)]
        absmax = state["nested_code"].double()[absmax.long()] * scales + state["nested_offset"].double()
    flat = stored.flatten().long()
    values = state["code"].double()[torch.stack([flat >> 4, flat & 15], 1).flatten()]
    blocksize = 128 if kind.endswith("128") else 64
    shape = module._model.get_parameter(name).shape
    return (values * absmax.repeat_interleave(blocksize)[: len(values)]).view(shape)
