"""Quantised products by plain arithmetic in float64, and generated cases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder
from thunder_onednn.quantised import four_bits
from thunder_onednn.quantised.quantize_weights import QuantizeWeights
from thunder_transforms.frozen.freezing import Freezing

SCHEMES = "int8-dynamic", "int8", "int4"
needs_vnni = pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="the CPU has no VNNI")
needs_blocks = pytest.mark.skipif(four_bits.block_rows() is None, reason="the CPU has no AVX2")
every_scheme = pytest.mark.parametrize(
    "scheme",
    [pytest.param("int8-dynamic", marks=needs_vnni), "int8", pytest.param("int4", marks=needs_blocks)],
)


def weight_of(compiled: Any, name: str = "weight") -> Tensor:
    """The weight that a compiled module stores, in float64, element by element."""
    state = compiled.state_dict()
    q, scale = state[name], state[f"{name}.scale"].double()
    if q.dtype is torch.int8:
        return torch.stack([q[i].double() * scale[i] for i in range(len(q))])
    blocks, length, half = q.shape
    weight = torch.empty(blocks * 2 * half, length, dtype=torch.float64)
    group = length // len(scale)
    scale, middle = scale.repeat_interleave(group, 0).unbind(-1)
    for block in range(blocks):
        for i in range(2 * half):
            row = block * 2 * half + i
            nibbles = q[block, :, i % half] >> (4 if i >= half else 0) & 15
            weight[row] = (nibbles.double() - 8) * scale[:, row] + middle[:, row]
    return weight


def rows_in_int8(x: Tensor) -> Tensor:
    """An input, each row of which is rounded to 127 steps, in float64."""
    steps = x.float().abs().amax(-1, keepdim=True) / 127
    return torch.where(steps == 0, 0.0, (x.float() / steps).round().double() * steps.double())


def expected(scheme: str, compiled: Any, x: Tensor, bias: Tensor | None) -> Tensor:
    """The product with the stored weight, in float64; one of a single column is not computed in int8."""
    x = rows_in_int8(x) if scheme == "int8-dynamic" and x.shape[-1] > 1 else x.double()
    y = x @ weight_of(compiled).t()
    return y if bias is None else y + bias.double()


def compiled_with(model: nn.Module, scheme: str, **settings: Any) -> Any:
    transforms = [QuantizeWeights(scheme, **{"smallest": 0} | settings), Freezing()]
    return thunder.jit(model.requires_grad_(False).eval(), transforms=transforms, executors=["onednn"])


def calls(compiled: Any) -> list[str]:
    names = [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols]
    return [name for name in names if not name.startswith("python")]


@dataclass(frozen=True)
class Case:
    """A linear layer and an input of it, from a number."""

    number: int
    shape: tuple[int, ...]
    features: int
    columns: int
    group_size: int
    bias: bool
    dtype: torch.dtype

    @classmethod
    def of(cls, number: int, scheme: str) -> Case:
        generator = torch.Generator().manual_seed(number)

        def one_of(*values: Any) -> Any:
            return values[int(torch.randint(len(values), (), generator=generator))]

        batch = one_of(
            (), (1,), (2,), (7,), (16,), (17,), (64,), (70,), (0,), (1, 1), (2, 3), (2, 1, 5), (3, 0)
        )
        group_size = one_of(32, 64, 128, 256)
        if scheme == "int4":
            features, columns = 64 * one_of(1, 2, 3), group_size * one_of(1, 2, 3)
        else:
            features, columns = one_of(1, 2, 7, 16, 33, 100), one_of(1, 5, 16, 31, 32, 48, 100, 256)
        dtype = one_of(torch.float32, torch.bfloat16, torch.float16)
        return cls(number, (*batch, columns), features, columns, group_size, one_of(True, False), dtype)

    def layer(self) -> nn.Linear:
        torch.manual_seed(self.number)
        return nn.Linear(self.columns, self.features, self.bias).to(self.dtype)

    def input(self) -> Tensor:
        return torch.randn(self.shape).to(self.dtype)
