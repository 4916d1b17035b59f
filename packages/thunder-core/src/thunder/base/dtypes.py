"""Data types of tensors: one object for each, with the short name that traces print.

A thunder dtype is equal to the corresponding torch dtype and has the same hash. A checker that compares
`proxy.dtype == torch.float32` therefore works; otherwise it would silently refuse every call.
"""

from __future__ import annotations

from typing import Any, overload

import torch

from thunder.base.errors import InvalidArgument, did_you_mean


class dtype:
    """The type of a tensor's elements: one object per type, to be compared with `is` or `==`."""

    __slots__ = ("_shortname", "name", "torch_dtype")

    def __init__(self, name: str, shortname: str, torch_dtype: torch.dtype) -> None:
        self.name = name
        self._shortname = shortname
        self.torch_dtype = torch_dtype

    def shortname(self) -> str:
        """Return the name in type strings: `"f32"` in `"cpu f32[2, 4]"`."""
        return self._shortname

    @property
    def is_floating_point(self) -> bool:
        """Whether it is a real floating-point type."""
        return self.torch_dtype.is_floating_point

    @property
    def is_complex(self) -> bool:
        """Whether it is a complex type."""
        return self.torch_dtype.is_complex

    @property
    def is_inexact(self) -> bool:
        """Whether it is floating-point or complex: the types that can carry gradients."""
        return self.is_floating_point or self.is_complex

    @property
    def is_bool(self) -> bool:
        """Whether it is the boolean type."""
        return self is bool8

    @property
    def is_integer(self) -> bool:
        """Whether it is an integer type; the boolean type is not one."""
        return not self.is_inexact and self is not bool8

    @property
    def is_signed(self) -> bool:
        """Whether it has negative values."""
        return self.torch_dtype.is_signed

    @property
    def itemsize(self) -> int:
        """Size of one element in bytes."""
        return self.torch_dtype.itemsize

    def __eq__(self, other: object) -> bool:
        if isinstance(other, torch.dtype):
            return self.torch_dtype is other
        return self is other

    def __hash__(self) -> int:
        return hash(self.torch_dtype)

    def __repr__(self) -> str:
        return f"thunder.dtypes.{self.name}"

    def __reduce__(self) -> tuple[object, ...]:
        return (_by_name, (self.name,))


bool8 = dtype("bool8", "b8", torch.bool)
uint8 = dtype("uint8", "ui8", torch.uint8)
uint16 = dtype("uint16", "ui16", torch.uint16)
uint32 = dtype("uint32", "ui32", torch.uint32)
uint64 = dtype("uint64", "ui64", torch.uint64)
int8 = dtype("int8", "i8", torch.int8)
int16 = dtype("int16", "i16", torch.int16)
int32 = dtype("int32", "i32", torch.int32)
int64 = dtype("int64", "i64", torch.int64)
bfloat16 = dtype("bfloat16", "bf16", torch.bfloat16)
float16 = dtype("float16", "f16", torch.float16)
float32 = dtype("float32", "f32", torch.float32)
float64 = dtype("float64", "f64", torch.float64)
float8_e4m3fn = dtype("float8_e4m3fn", "f8_e4m3fn", torch.float8_e4m3fn)
float8_e4m3fnuz = dtype("float8_e4m3fnuz", "f8_e4m3fnuz", torch.float8_e4m3fnuz)
float8_e5m2 = dtype("float8_e5m2", "f8_e5m2", torch.float8_e5m2)
float8_e5m2fnuz = dtype("float8_e5m2fnuz", "f8_e5m2fnuz", torch.float8_e5m2fnuz)
float8_e8m0fnu = dtype("float8_e8m0fnu", "f8_e8m0fnu", torch.float8_e8m0fnu)
float4_e2m1fn_x2 = dtype("float4_e2m1fn_x2", "f4_e2m1fn_x2", torch.float4_e2m1fn_x2)
complex32 = dtype("complex32", "c32", torch.complex32)
complex64 = dtype("complex64", "c64", torch.complex64)
complex128 = dtype("complex128", "c128", torch.complex128)
if hasattr(torch, "bcomplex32"):  # since torch 2.15: the complex type of bfloat16
    bcomplex32 = dtype("bcomplex32", "bc32", torch.bcomplex32)

all_dtypes: tuple[dtype, ...] = tuple(value for value in list(globals().values()) if isinstance(value, dtype))
#: those with arithmetic in every language in which kernels are written
arithmetic_dtypes = frozenset({float64, float32, float16, bfloat16, int64, int32, int16, int8, uint8, bool8})

__all__ = ["all_dtypes", "arithmetic_dtypes", "dtype", "python_type_of", "to_dtype", "to_torch_dtype"]
__all__ += [d.name for d in all_dtypes]

_names = {d.name: d for d in all_dtypes}

# A Python type means what it means to torch where a dtype is expected: `torch.zeros(2, dtype=float)` is
# float64.
_of_torch: dict[object, dtype] = {d.torch_dtype: d for d in all_dtypes}
_of_python: dict[object, dtype] = {bool: bool8, int: int64, float: float64, complex: complex128}


def python_type_of(d: dtype) -> type:
    """Return the Python type of ``tensor.item()``."""
    if d.is_inexact:
        return complex if d.is_complex else float
    return bool if d.is_bool else int


def _by_name(name: str) -> dtype:
    return _names[name]


def to_dtype(x: Any) -> dtype:
    """Return the thunder dtype of `x`.

    `x` is a thunder or torch dtype, a Python number type, or an object with an attribute `dtype`. Raises
    InvalidArgument for anything else, and for torch dtypes that thunder does not model (quantised ones).
    """
    if isinstance(x, dtype):
        return x
    result = (
        _of_torch.get(x) if isinstance(x, torch.dtype) else _of_python.get(x) if isinstance(x, type) else None
    )
    if result is not None:
        return result
    if not isinstance(x, (type, torch.dtype)) and hasattr(x, "dtype"):
        return to_dtype(x.dtype)
    suggestion = did_you_mean(x.removeprefix("torch."), _names) if isinstance(x, str) else ""
    raise InvalidArgument(
        f"{x!r} is not a data type that thunder knows.{suggestion}",
        found=None if x is None else {"type": type(x).__name__},
        hint="Give a torch dtype, a thunder dtype, or one of bool, int, float, complex.",
    )


@overload
def to_torch_dtype(x: None) -> None: ...
@overload
def to_torch_dtype(x: Any) -> torch.dtype: ...
def to_torch_dtype(x: Any) -> torch.dtype | None:
    """Return the torch dtype of anything that `to_dtype` takes; None, which leaves it to torch, stays."""
    return x if x is None or isinstance(x, torch.dtype) else to_dtype(x).torch_dtype
