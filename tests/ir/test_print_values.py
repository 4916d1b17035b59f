"""How values and types print."""

from __future__ import annotations

import dataclasses
import enum
import math
from collections import namedtuple

import pytest
import torch

from ir.building import body, text, traced
from ir.example_symbols import take
from thunder.base import devices, dtypes
from thunder.ir.proxies import (
    AnyProxy,
    CollectionProxy,
    FloatProxy,
    FutureTensorProxy,
    IntegerProxy,
    TensorProxy,
)
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops import prims

Color = enum.Enum("Color", ["RED", "BLUE"])
Point = namedtuple("Point", ["x", "y"])


@dataclasses.dataclass
class Config:
    width: int
    rate: float = 0.5


class Opaque:
    pass


@pytest.mark.parametrize(
    ("value", "printed"),
    [
        (None, "None"),
        (True, "True"),
        (3, "3"),
        (-7, "-7"),
        (1e-05, "1e-05"),
        (math.sqrt(2), "1.4142135623730951"),
        (-0.0, "-0.0"),
        (math.inf, "float('inf')"),
        (-math.inf, "-float('inf')"),
        (math.nan, "float('NaN')"),
        (complex(1, -2), "complex(1.0, -2.0)"),
        (complex(0, math.inf), "complex(0.0, float('inf'))"),
        ("it's", '"it\'s"'),
        (b"ab", "b'ab'"),
        (slice(1, None, 2), "slice(1, None, 2)"),
        (..., "..."),
        (range(3), "range(0, 3)"),
        ((), "()"),
        ((1,), "(1,)"),
        ((1, (2.0, None)), "(1, (2.0, None))"),
        ([1, [2]], "[1, [2]]"),
        ({"a": 1, 2: (3,)}, "{'a': 1, 2: (3,)}"),
        ({"b", "a"}, "{'a', 'b'}"),
        (frozenset({1}), "frozenset({1})"),
        (torch.Size([2, 3]), "torch.Size([2, 3])"),
        (torch.float32, "torch.float32"),
        (torch.device("cpu"), 'torch.device("cpu")'),
        (torch.device("cuda", 1), 'torch.device("cuda:1")'),
        (torch.strided, "torch.strided"),
        (torch.channels_last, "torch.channels_last"),
        (dtypes.float32, "dtypes.float32"),
        (devices.Device("cuda:0"), 'devices.Device("cuda:0")'),
        (int, "int"),
        (Config, "Config"),
        (Config(3), "ir_test_print_values_Config(width=3, rate=0.5)"),
        (Point(1, 2.0), "ir_test_print_values_Point(x=1, y=2.0)"),
        (torch.return_types.max([1, 2]), "torch.return_types.max([1, 2])"),
        (Color.BLUE, "_Color_BLUE_0"),
        (Opaque(), "_Opaque_0"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_a_value_prints_as(value, printed):
    printed = printed.replace("ir_test_print_values", __name__.replace(".", "_"))
    trace = traced(lambda x: take(x, value), "x")
    assert body(trace)[0] == f't0 = take(x, {printed})  # t0: "cpu f32[4]"'


@pytest.mark.parametrize(
    ("make", "printed"),
    [
        (lambda: TensorProxy("p", shape=(), device="cpu", dtype=torch.bool), "cpu b8[]"),
        (lambda: TensorProxy("p", shape=(2, 3), device="cuda", dtype=torch.bfloat16), "cuda:0 bf16[2, 3]"),
        (lambda: TensorProxy("p", shape=(0,), device="meta", dtype=torch.int64), "meta i64[0]"),
        (lambda: IntegerProxy("p", 2), "int 2"),
        (lambda: IntegerProxy("p", True, python_type=bool), "bool True"),
        (lambda: FloatProxy("p", 2.0), "float 2.0"),
        (lambda: FloatProxy("p"), "float ?"),
        (lambda: CollectionProxy("p"), "Collection"),
        (lambda: AnyProxy("p"), "Any"),
        (
            lambda: FutureTensorProxy(
                "p", like=TensorProxy("q", shape=(8,), device="cuda:0", dtype=torch.float32)
            ),
            "FUTURE cuda:0 f32[8]",
        ),
    ],
)
def test_the_type_of_an_input_prints_as(make, printed):
    trace = TraceCtx()
    with tracectx(trace):
        p = make()
        trace.args = [p]
        prims.python_return(p)
    assert f'  # p: "{printed}"' in text(trace).splitlines()
