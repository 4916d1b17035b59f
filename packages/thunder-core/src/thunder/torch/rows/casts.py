"""Conversions of dtype, device and layout."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from thunder.base import dtypes
from thunder.base.devices import to_device
from thunder.base.dtypes import to_dtype
from thunder.base.errors import OperatorError, UnsupportedOperator, UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.ir.proxies import NumberProxy, TensorProxy, number_in
from thunder.ir.trace_context import get_tracectx
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.layout_rules import LIKE
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.torch_errors import OperatorValueError
from thunder.torch.broadcasting import broadcast_to_shape
from thunder.torch.inplace import assign
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.tensor_attributes import is_contiguous

Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_KEEPS = (torch.preserve_format, torch.contiguous_format)


def check_memory_format(name: str, memory_format: Any, rank: int) -> None:
    """Raise OperatorError where torch does for a memory format that the rank cannot have."""
    if memory_format is torch.channels_last and rank != 4:
        raise OperatorError("required rank 4 tensor to use channels_last format")
    if memory_format is torch.channels_last_3d and rank != 5:
        raise OperatorError("required rank 5 tensor to use channels_last_3d format")


def _move(a: TensorProxy, device: Any, dtype: Any) -> TensorProxy:
    if dtype is not None:
        a = cast(a, dtype)
    if device is not None:
        target_device = to_device(device)
        if target_device is not a.device:
            a = prims.device_put(a, target_device)
    return a


def _to_device(
    device: Any = None,
    dtype: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    *,
    memory_format: Any = None,
) -> Arguments:
    return _to_arguments(device, dtype, non_blocking, copy, memory_format)


def _to_dtype(
    dtype: Any, non_blocking: bool = False, copy: bool = False, *, memory_format: Any = None
) -> Arguments:
    return _to_arguments(None, dtype, non_blocking, copy, memory_format)


def _to_tensor(
    tensor: TensorProxy, non_blocking: bool = False, copy: bool = False, *, memory_format: Any = None
) -> Arguments:
    return _to_arguments(tensor.device, tensor.dtype, non_blocking, copy, memory_format)


def _to_arguments(device: Any, dtype: Any, non_blocking: Any, copy: Any, memory_format: Any) -> Arguments:
    flags = {
        "non_blocking": non_blocking,
        "copy": copy,
        "memory_format": torch.preserve_format if memory_format is None else memory_format,
    }
    return (_torch_device(device), _torch_dtype(dtype)), flags


def _to_spelling(input: Any, *args: Any, **kwargs: Any) -> Arguments:
    """Bind the three overloads of ``Tensor.to`` to ``to(input, device, dtype, …)``.

    They differ in the first argument.
    """
    first = args[0] if args else kwargs.get("tensor")
    kind = next((t for t in (bool, float, complex) if isinstance(first, t)), None)
    if kind is not None:  # a number of these types means its type
        first, args = kind, (kind, *args[1:])
    if isinstance(first, TensorProxy):
        overload: Callable[..., Arguments] = _to_tensor
    else:
        overload = _to_dtype if isinstance(first, torch.dtype | dtypes.dtype | type) else _to_device
    places, flags = overload(*args, **kwargs)
    return (input, *places), flags


def _torch_device(device: Any) -> torch.device | None:
    if device is None:
        return None
    if isinstance(device, int):
        device = f"cuda:{device}"
    return to_device(device)._torch


def _torch_dtype(dtype: Any) -> torch.dtype | None:
    return None if dtype is None else dtypes.to_torch_dtype(dtype)


def _to_eager(input: torch.Tensor, device: Any = None, dtype: Any = None, **flags: Any) -> torch.Tensor:
    return input.to(device=device, dtype=dtype, **flags)


@torchsymbol("torch.Tensor.to", spelling=_to_spelling, eager=_to_eager, tags=(OpTags.MAYBE_VIEW,))
def to(
    input: TensorProxy,
    device: Any = None,
    dtype: Any = None,
    *,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = torch.preserve_format,
) -> TensorProxy:
    """The input with this device and dtype; the input itself if it has them, unless ``copy``."""
    check_memory_format("to", memory_format, len(input.shape))
    moved = _move(input, device, dtype)
    if moved is input and (copy or memory_format not in _KEEPS):
        return prims.clone(input)
    return moved


def _conversion(name: str, dtype: torch.dtype) -> Callable[..., Any]:
    @torch_names(methods=(name,))
    def convert(input: TensorProxy, memory_format: Any = torch.preserve_format) -> TensorProxy:
        return to(input, None, dtype, memory_format=memory_format)

    return convert


#: methods that name a dtype
CONVERSIONS = {
    "bool": torch.bool,
    "byte": torch.uint8,
    "char": torch.int8,
    "short": torch.int16,
    "int": torch.int32,
    "long": torch.int64,
    "half": torch.float16,
    "bfloat16": torch.bfloat16,
    "float": torch.float32,
    "double": torch.float64,
    "chalf": torch.complex32,
    "cfloat": torch.complex64,
    "cdouble": torch.complex128,
}
for _name, _dtype in CONVERSIONS.items():
    _conversion(_name, _dtype)


@torch_names(methods=("cpu",))
def cpu(input: TensorProxy, memory_format: Any = torch.preserve_format) -> TensorProxy:
    """``to("cpu")``."""
    return to(input, "cpu", None, memory_format=memory_format)


@torch_names(methods=("cuda",))
def cuda(
    input: TensorProxy,
    device: Any = None,
    non_blocking: bool = False,
    memory_format: Any = torch.preserve_format,
) -> TensorProxy:
    """``to("cuda")``."""
    target = "cuda" if device is None else device
    return to(input, target, None, non_blocking=non_blocking, memory_format=memory_format)


@torchsymbol("torch.Tensor.type_as", tags=(OpTags.MAYBE_VIEW,))
def type_as(input: TensorProxy, other: TensorProxy) -> TensorProxy:
    """The input with the other's dtype and device."""
    return _move(input, other.device, other.dtype)


_TENSOR_TYPES = {
    f"{n}Tensor": d
    for n, d in (
        ("Bool", torch.bool),
        ("Byte", torch.uint8),
        ("Char", torch.int8),
        ("Short", torch.int16),
        ("Int", torch.int32),
        ("Long", torch.int64),
        ("Half", torch.float16),
        ("BFloat16", torch.bfloat16),
        ("Float", torch.float32),
        ("Double", torch.float64),
        ("ComplexHalf", torch.complex32),
        ("ComplexFloat", torch.complex64),
        ("ComplexDouble", torch.complex128),
        ("UInt16", torch.uint16),
        ("UInt32", torch.uint32),
        ("UInt64", torch.uint64),
    )
}
#: modules with types of tensors, and the device of each
_TYPE_PLACES = {"torch": "cpu", "torch.cuda": "cuda"}


@torch_names(methods=("type",))
def type_(input: TensorProxy, dtype: Any = None, non_blocking: bool = False) -> Any:
    """The name of the tensor's type, or a conversion to a dtype or a tensor type.

    A type is a class or its name.
    """
    if dtype is None:
        name = next((name for name, d in _TENSOR_TYPES.items() if input.dtype == d), None)
        if input.device.type != "cpu" or name is None:
            raise UnsupportedOperator(
                f"tensor.type() of a tensor of {input.dtype} on {input.device}", hint="Use tensor.dtype."
            )
        return f"torch.{name}"
    if isinstance(dtype, torch.dtype | dtypes.dtype):
        return to(input, None, dtype)
    full = f"{dtype.__module__}.{dtype.__qualname__}" if isinstance(dtype, type) else str(dtype)
    place, _, name = full.rpartition(".")
    target_dtype = torch.get_default_dtype() if full == "torch.Tensor" else _TENSOR_TYPES.get(name)
    if target_dtype is None or place not in _TYPE_PLACES:
        raise OperatorValueError(f"invalid type: {full!r}")
    return to(input, _TYPE_PLACES[place], target_dtype)


def _in_its_memory(
    a: torch.Tensor, *, memory_format: torch.memory_format = torch.preserve_format, out: torch.Tensor
) -> torch.Tensor:
    """Return a contiguous tensor that nobody else has as its own copy."""
    keeps_order = memory_format in (torch.preserve_format, torch.contiguous_format)
    return out if keeps_order else a.clone(memory_format=memory_format)


@torchsymbol("torch.clone", methods=("clone",), layout=LIKE, with_out=_in_its_memory)
def clone(input: TensorProxy, *, memory_format: Any = torch.preserve_format) -> TensorProxy:
    """A copy in new memory."""
    check_memory_format("clone", memory_format, len(input.shape))
    return prims.clone(input)


@torchsymbol("torch.Tensor.contiguous", tags=(OpTags.MAYBE_VIEW, OpTags.MAYBE_ARGUMENT))
def contiguous(input: TensorProxy, *, memory_format: Any = torch.contiguous_format) -> TensorProxy:
    """The elements in the order of a memory format: a copy, unless they are in that order."""
    check_memory_format("contiguous", memory_format, len(input.shape))
    if retains_grad(input) and is_contiguous(input, memory_format):
        return input
    order = _FORMAT_ORDERS.get(memory_format)
    rank = len(input.shape)
    return prims.stride_order(input, tuple(reversed(range(rank))) if order is None else order)


def retains_grad(input: TensorProxy) -> bool:
    """Return whether the input requires grad while gradients are off.

    Then the input itself would require grad as a result, and a copy would not.
    """
    trace = get_tracectx()
    tracked = trace is not None and trace.grad_enabled
    return tracked and input.requires_grad and not torch.is_grad_enabled()


def refuse_if_grad_is_retained(name: str, input: TensorProxy) -> None:
    """Refuse a function that returns its input or a copy, if the two differ in requires_grad.

    The trace does not know which of the two torch returns.
    """
    if retains_grad(input):
        raise UnsupportedProgram(
            f"{name}() under torch.no_grad() of a tensor that requires grad",
            found={input.name: f'"{input.type_string()}"'},
            hint=f"Write x.detach().{name}(), or call it where gradients are on.",
        )


#: rank of each dimension's stride, the innermost 0
_FORMAT_ORDERS = {torch.channels_last: (3, 0, 2, 1), torch.channels_last_3d: (4, 0, 3, 2, 1)}


@torchsymbol("torch.detach", methods=("detach",), properties=("data",), tags=(OpTags.VIEW,))
def detach(input: TensorProxy) -> TensorProxy:
    """A view of the same memory, without gradient."""
    return prims.detach(input)


@torchsymbol("torch.Tensor.item", tags=(OpTags.DEVICE_SYNC_OP,), vjp=NONDIFFERENTIABLE)
def item(input: TensorProxy) -> NumberProxy:
    """The number in a tensor of one element.

    A program can return it, but branch on it only if it depends on no input.
    """
    number = number_in(input)
    return prims.item(input) if number is input else number


@torchsymbol("torch.Tensor.copy_", tags=(OpTags.IN_PLACE,))
def copy_(input: TensorProxy, src: Any, non_blocking: bool = False) -> TensorProxy:
    """Write ``src``, broadcast and converted, to the input."""
    if not isinstance(src, TensorProxy):
        src = prims.full((), src, device=input.device, dtype=input.dtype)
    if src.device is not input.device:
        src = prims.device_put(src, input.device)
    if src.dtype is input.dtype and src.shape == input.shape:
        return assign(src, input)
    return assign(cast(broadcast_to_shape(src, input.shape), input.dtype), input)


@torchsymbol(
    id="torch.Tensor.view_dtype", eager=torch.Tensor.view, eager_path="torch.Tensor.view", tags=(OpTags.VIEW,)
)
def view_dtype(input: TensorProxy, dtype: Any) -> TensorProxy:
    """A view of the same memory as another dtype."""
    return prims.bitcast(input, to_dtype(dtype))
