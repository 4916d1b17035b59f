"""The leaves that a program reads are guarded by type and value."""

from __future__ import annotations

import enum

import torch

import thunder
from soundness.harness import Cases, arg, check_case, kwarg, ramp, world

cases = Cases()


@cases(number=arg(1, 2.0), tensor=arg(1, ramp(3, start=4.0)), zero=arg(1, 0), boolean=arg(1, False))
def none_then_value():
    return world(lambda x, m: x if m is None else x + m + 1, ramp(3), None)


@cases(none=arg(1, None), number=arg(1, 2.0))
def tensor_then_none():
    return world(lambda x, m: x if m is None else x + m + 1, ramp(3), ramp(3, start=4.0))


@cases(none=arg(1, None), tensor=arg(1, ramp(3)))
def number_then_none():
    return world(lambda x, m: x * 3 if m is not None else x, ramp(3), 2.0)


@cases(none=kwarg("bias", None), absent=lambda w: w.kwargs.pop("bias"))
def optional_keyword_tensor():
    def program(x, bias=None):
        return x if bias is None else x + bias

    return world(program, ramp(3), bias=ramp(3))


@cases(true=arg(1, True), float=arg(1, 1.0), two=arg(1, 2))
def number_types():
    return world(lambda x, n: (x + n, n, type(n)), ramp(3, dtype=torch.int64).to(torch.int64), 1)


@cases(integer=arg(1, 1), float=arg(1, 1.0), false=arg(1, False))
def boolean_types():
    return world(lambda x, b: x * b if b is True else x - b, torch.arange(3), True)


@cases(negative=arg(1, -0.0), integer=arg(1, 0))
def signed_zero():
    return world(lambda x, z: x / z if isinstance(z, float) else x, ramp(3), 0.0)


@cases(number=arg(1, 2.0), infinity=arg(1, float("inf")))
def nan_equals_nan():
    return world(lambda x, n: x + (1.0 if n != n else n), ramp(3), float("nan"))


@cases(other=arg(1, 1 - 2j), real=arg(1, 1.0))
def complex_number():
    return world(lambda x, c: x * c.real + c.imag, ramp(3), 1 + 2j)


@cases(bigger=arg(1, 2**70 + 1))
def big_integer():
    return world(lambda x, n: x * (n % 7), ramp(3), 2**70)


class Kind(enum.Enum):
    ADD = 1
    MUL = 2


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


@cases(other=arg(1, "mul"), bytes=arg(1, b"add"), subclass=arg(1, type("Text", (str,), {})("sub")))
def strings():
    return world(lambda x, op: x + 1 if op == "add" else x * 2 if op == "mul" else x, ramp(3), "add")


@cases(other=arg(1, b"abc"), text=arg(1, "ab"))
def bytes_value():
    return world(lambda x, b: x * len(b) + isinstance(b, str), ramp(3), b"ab")


@cases(stop=arg(1, slice(0, 3)), step=arg(1, slice(0, 4, 2)), integer=arg(1, 1))
def slices():
    return world(lambda x, s: x[s] + 1, ramp(5), slice(0, 2))


@cases(stop=arg(1, range(3)), step=arg(1, range(0, 4, 2)), list=arg(1, [0, 5]))
def ranges():
    return world(lambda x, r: x + sum(i * i for i in r), ramp(3), range(4))


@cases(member=arg(1, Kind.MUL), value=arg(1, 1))
def enums():
    return world(lambda x, k: x + 1 if k is Kind.ADD else x * 2, ramp(3), Kind.ADD)


@cases(member=arg(1, Level.HIGH), integer=arg(1, 2))
def integer_enums():
    return world(lambda x, k: x * k + isinstance(k, Level), ramp(3), Level.LOW)


@cases(slice=arg(1, slice(None)), none=arg(1, None), integer=arg(1, 0))
def ellipsis():
    return world(lambda x, i: x[i] * 2, ramp(2, 2), ...)


@cases(other=arg(1, torch.Size([3, 2])), list=arg(1, [3, 2]), tuple=arg(1, (2, 3)))
def sizes():
    return world(lambda x, s: (x.reshape(s), type(s)), ramp(6), torch.Size([2, 3]))


@cases(dtype=kwarg("dtype", torch.float64), integer=kwarg("dtype", torch.int32), none=kwarg("dtype", None))
def dtypes():
    return world(lambda x, dtype: x * 2 if dtype is None else x.to(dtype) * 2, ramp(3), dtype=torch.bfloat16)


@cases(
    meta=kwarg("device", torch.device("meta")),
    text=kwarg("device", "cpu"),
    index=kwarg("device", torch.device("cpu", 0)),
)
def devices():
    return world(
        lambda x, device: (
            torch.zeros(3, device=device) if str(device) == "meta" else x + torch.ones(3, device=device)
        ),
        ramp(3),
        device=torch.device("cpu"),
    )


@cases(
    preserve=kwarg("memory_format", torch.preserve_format),
    contiguous=kwarg("memory_format", torch.contiguous_format),
)
def memory_formats():
    return world(
        lambda x, memory_format: x.clone(memory_format=memory_format),
        ramp(1, 2, 2, 2),
        memory_format=torch.channels_last,
    )


@cases(other=arg(1, torch.sparse_coo))
def layouts():
    return world(lambda x, layout: x if layout is torch.strided else x * 2, ramp(3), torch.strided)


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)
