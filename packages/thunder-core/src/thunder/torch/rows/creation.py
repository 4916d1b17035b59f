"""Creation of tensors from numbers: constants, ranges, and tensors like other tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.devices import Device, to_device
from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import int64, python_type_of, to_dtype
from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy, number_in, pytype
from thunder.ir.recorder import UNDECIDED
from thunder.ir.refused_methods import as_size
from thunder.ir.requires_grad import results_require_grad
from thunder.ir.symbol import Symbol
from thunder.ir.symbolic_sizes import SymbolicNumber
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.in_place import InPlaceForm, whole
from thunder.ops.layout_rules import NEW, NEW_LIKE
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.promotion import complex_result, number_dtype
from thunder.torch.argument_binding import BindingError, unpacked
from thunder.torch.broadcasting import broadcast_to_shape, operands
from thunder.torch.inplace import assign, write_back
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.casts import check_memory_format, to
from thunder.torch.rows.reduction import amax
from thunder.torch.rows.shape import diagonal, unsqueeze


def default_dtype(dtype: Any) -> Dtype:
    """Return the dtype, or torch's default for None."""
    return to_dtype(torch.get_default_dtype() if dtype is None else dtype)


def default_device(device: Any) -> Device:
    """Return the device, or torch's default for None."""
    if isinstance(device, int):
        device = f"cuda:{device}"
    return to_device(torch.get_default_device() if device is None else device)


def size_spelling(*size: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """``torch.ones(2, 3)``, ``torch.ones((2, 3))``, ``torch.ones(size=…)`` → ``ones(size)``."""
    if "size" in kwargs and not size:
        size = (kwargs.pop("size"),)
    return (unpacked(size),), _options(kwargs)


def new_spelling(input: Any, *size: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bind ``x.new_zeros(2, 3)`` to ``new_zeros(x, size)``."""
    if "size" in kwargs and not size:
        size = (kwargs.pop("size"),)
    return (input, unpacked(size)), _options(kwargs)


def _options(kwargs: dict[str, Any]) -> dict[str, Any]:
    if not kwargs.keys() <= {"dtype", "device"}:
        raise BindingError(f"unexpected keyword arguments {sorted(kwargs)}")
    return {"dtype": kwargs.get("dtype"), "device": kwargs.get("device")}


# -- constants -----------------------------------------------------------------------------------------------


def _constant(
    name: str, make: Callable[..., TensorProxy], in_place: InPlaceForm | None = None
) -> tuple[Symbol, Symbol, Symbol]:
    """Register ``torch.zeros``, ``torch.zeros_like`` and ``Tensor.new_zeros``, or others."""

    def plain(size: Sequence[int], *, dtype: Any = None, device: Any = None) -> TensorProxy:
        return make(size, device=default_device(device), dtype=default_dtype(dtype))

    def like(
        input: TensorProxy,
        *,
        dtype: Any = None,
        device: Any = None,
        memory_format: Any = torch.preserve_format,
    ) -> TensorProxy:
        check_memory_format(name, memory_format, len(input.shape))
        return make(
            input.shape,
            device=input.device if device is None else default_device(device),
            dtype=input.dtype if dtype is None else to_dtype(dtype),
        )

    def new(input: TensorProxy, size: Sequence[int], *, dtype: Any = None, device: Any = None) -> TensorProxy:
        return make(
            size,
            device=input.device if device is None else default_device(device),
            dtype=input.dtype if dtype is None else to_dtype(dtype),
        )

    return (
        torchsymbol(
            f"torch.{name}",
            spelling=size_spelling,
            tags=(OpTags.DEFAULT_DTYPE,),
            vjp=NONDIFFERENTIABLE,
            layout=NEW,
            integers="sizes",
        )(plain),
        torchsymbol(f"torch.{name}_like", vjp=NONDIFFERENTIABLE, layout=NEW_LIKE, in_place=in_place)(like),
        torchsymbol(
            f"torch.Tensor.new_{name}",
            spelling=new_spelling,
            vjp=NONDIFFERENTIABLE,
            layout=NEW,
            integers="sizes",
        )(new),
    )


zeros, zeros_like, new_zeros = _constant(
    "zeros", lambda shape, **kw: prims.full(shape, 0, **kw), whole(lambda a, *_, **__: a.zero_())
)
ones, ones_like, new_ones = _constant(
    "ones", lambda shape, **kw: prims.full(shape, 1, **kw), whole(lambda a, *_, **__: a.fill_(1))
)
empty, empty_like, new_empty = _constant("empty", lambda shape, **kw: prims.empty(shape, **kw))


def _strided_meta(
    size: Sequence[int], layout: Sequence[int], *, dtype: Any = None, device: Any = None
) -> TensorProxy:
    if len(size) != len(layout):
        raise OperatorError(f"mismatch in length of strides {list(layout)} and shape {list(size)}")
    return TensorProxy(shape=size, device=default_device(device), dtype=default_dtype(dtype))


empty_strided, empty_permuted = (
    torchsymbol(f"torch.{name}", prim=True, vjp=NONDIFFERENTIABLE, tags=(OpTags.UNINITIALIZED,))(
        _strided_meta
    )
    for name in ("empty_strided", "empty_permuted")
)


@torchsymbol("torch.full", layout=NEW, tags=(OpTags.READS_NUMBER_FIRST,), vjp=NONDIFFERENTIABLE)
def full(size: Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None) -> TensorProxy:
    """A tensor filled with one number, of the number's dtype by default."""
    result_type = _value_dtype(fill_value) if dtype is None else to_dtype(dtype)
    return _filled(tuple(size), fill_value, default_device(device), result_type)


def _value_dtype(value: Any) -> Dtype:
    """Return the dtype of a number, or of the Python number that torch reads from a tensor."""
    return number_dtype(python_type_of(value.dtype) if isinstance(value, TensorProxy) else pytype(value))


@torchsymbol(
    id="torch.full_of_tensor", eager=torch.full, eager_path="torch.full", prim=True, vjp=NONDIFFERENTIABLE
)
def full_of_tensor(size: Sequence[int], fill_value: TensorProxy, *, dtype: Any, device: Any) -> TensorProxy:
    """``full`` with the number in a tensor without dimensions.

    Torch refuses a number that the dtype cannot hold, at run time.
    """
    return TensorProxy(shape=size, device=to_device(device), dtype=to_dtype(dtype))


def _filled(shape: tuple[int, ...], value: Any, device: Device, dtype: Dtype) -> TensorProxy:
    value = number_in(value)
    if isinstance(value, TensorProxy):
        return full_of_tensor(shape, value, device=device, dtype=dtype)
    return prims.full(shape, value, device=device, dtype=dtype)


@torchsymbol(
    "torch.full_like",
    vjp=NONDIFFERENTIABLE,
    layout=NEW_LIKE,
    in_place=whole(lambda a, value, *_, **__: a.fill_(value)),
)
def full_like(
    input: TensorProxy,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    memory_format: Any = torch.preserve_format,
) -> TensorProxy:
    """A tensor of one number, of the input's shape, dtype and device."""
    result_type = input.dtype if dtype is None else to_dtype(dtype)
    return _filled(
        input.shape, fill_value, input.device if device is None else default_device(device), result_type
    )


@torchsymbol("torch.Tensor.new_full", vjp=NONDIFFERENTIABLE, layout=NEW)
def new_full(
    input: TensorProxy, size: Sequence[int], fill_value: Any, *, dtype: Any = None, device: Any = None
) -> TensorProxy:
    """A tensor of one number, of the input's dtype and device."""
    result_type = input.dtype if dtype is None else to_dtype(dtype)
    return _filled(
        tuple(size), fill_value, input.device if device is None else default_device(device), result_type
    )


@torchsymbol(
    "torch.fill",
    inplace=("fill_",),
    inplace_functions=("torch.fill_",),
    in_place=whole(torch.Tensor.fill_),
    tags=(OpTags.READS_NUMBER_FIRST,),
)
def fill(input: TensorProxy, value: Any) -> TensorProxy:
    """All elements replaced by one value."""
    if isinstance(value, TensorProxy) and value.shape:
        raise OperatorError(
            f"fill_ only supports 0-dimension value tensor but got tensor with {len(value.shape)} dimensions."
        )
    if isinstance(value, TensorProxy):
        return prims.clone(broadcast_to_shape(cast(to(value, input.device), input.dtype), input.shape))
    out = _filled(input.shape, value, input.device, input.dtype)
    out.requires_grad = input.requires_grad and results_require_grad()  # the gradient is zero
    return out


@torch_names(methods=("fill_diagonal_",))
def fill_diagonal_(input: TensorProxy, fill_value: Any, wrap: bool = False) -> TensorProxy:
    """Write a number to the diagonal of a matrix; other ranks and ``wrap`` are refused."""
    if len(input.shape) != 2 or wrap:
        raise UnsupportedOperator(
            "torch.Tensor.fill_diagonal_ of more dimensions than two, or with wrap=True",
            found={input.name: f'"{input.type_string()}"'},
            hint="Write to views: x.diagonal().fill_(value).",
        )
    write_back(_filled((min(input.shape),), fill_value, input.device, input.dtype), diagonal(input))
    return input


@torchsymbol("torch.Tensor.zero_", "torch.zero_", tags=(OpTags.IN_PLACE,))
def zero_(input: TensorProxy) -> TensorProxy:
    """Write 0 to all elements."""
    return assign(zeros_like(input), input)


@torchsymbol("torch.scalar_tensor", vjp=NONDIFFERENTIABLE)
def scalar_tensor(s: Any, *, dtype: Any = None, device: Any = None) -> TensorProxy:
    """A tensor without dimensions, of the default dtype unless ``dtype`` is passed."""
    return _filled((), s, default_device(device), default_dtype(dtype))


# -- ranges --------------------------------------------------------------------------------------------------


def _arange_spelling(*bounds: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bind ``arange(end)``, ``arange(start, end)`` and ``arange(start, end, step)``."""
    named = dict(zip(("end",) if len(bounds) == 1 else ("start", "end", "step"), bounds, strict=False))
    named.update({k: kwargs.pop(k) for k in ("start", "end", "step") if k in kwargs})
    if "end" not in named or len(bounds) > 3:
        raise BindingError("arange() received an invalid combination of arguments")
    range_of = named.get("start", 0), named["end"], named.get("step", 1)
    return tuple(_real(number_in(x)) for x in range_of), _options(kwargs)


def _real(x: Any) -> Any:
    """Return a complex number without an imaginary part as a float; raise OperatorError for another one."""
    if not isinstance(x, complex):
        return x
    if x.imag:
        raise OperatorError("value cannot be converted to type double without overflow")
    return x.real


def _whole(x: Any) -> Any:
    """Return a number without its fraction."""
    return math.trunc(x) if isinstance(x, SymbolicNumber) else int(x)


@torchsymbol("torch.arange", spelling=_arange_spelling, vjp=NONDIFFERENTIABLE, layout=NEW, integers="sizes")
def arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, device: Any = None) -> TensorProxy:
    """``start``, ``start + step``, … below ``end``; int64 for integers, or the default dtype."""
    if any(isinstance(x, TensorProxy) for x in (start, end, step)):
        raise UnsupportedOperator(
            "torch.arange to a bound in a tensor", hint="Give the bounds as Python numbers."
        )
    whole = all(issubclass(pytype(x), int) for x in (start, end, step))
    result_type = (int64 if whole else default_dtype(None)) if dtype is None else to_dtype(dtype)
    if result_type.is_integer and not whole:
        start, end, step = map(_whole, (start, end, step))
        whole = True
    if step == 0 or (end - start) * step < 0:
        raise OperatorError("upper bound and lower bound inconsistent with step sign")
    length = -(-(end - start) // step) if whole else math.ceil((end - start) / step)
    return prims.iota(length, start=start, step=step, device=default_device(device), dtype=result_type)


@torchsymbol(
    id="torch.linspace_of_tensors",
    tags=(OpTags.RAISES_ON_DATA,),
    eager=torch.linspace,
    eager_path="torch.linspace",
    prim=True,
    vjp=NONDIFFERENTIABLE,
)
def linspace_of_tensors(
    start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None
) -> TensorProxy:
    """``linspace`` between bounds of which one or both are in tensors without dimensions."""
    bounds = [x for x in (start, end) if isinstance(x, TensorProxy)]
    if any(x.shape for x in bounds):
        raise OperatorError("linspace only supports 0-dimensional start and end tensors")
    result_type = default_dtype(dtype)
    if dtype is None and any(_value_dtype(x).is_complex for x in (start, end)):
        result_type = complex_result(result_type)
    where = bounds[0].device if device is None else default_device(device)
    return TensorProxy(shape=(steps,), device=where, dtype=result_type)


@torchsymbol("torch.linspace", tags=(OpTags.DEFAULT_DTYPE,), vjp=NONDIFFERENTIABLE)
def linspace(start: Any, end: Any, steps: int, *, dtype: Any = None, device: Any = None) -> TensorProxy:
    """``steps`` numbers from ``start`` to ``end``, both included, at equal distances."""
    if steps < 0:
        raise OperatorError("number of steps must be non-negative")
    if isinstance(start, TensorProxy) or isinstance(end, TensorProxy):
        return linspace_of_tensors(start, end, steps, dtype=dtype, device=device)
    return prims.linspace(start, end, steps, device=default_device(device), dtype=default_dtype(dtype))


def _eye_spelling(n: int, m: int | None = None, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return (n, n if m is None else m), _options(kwargs)


@torchsymbol("torch.eye", spelling=_eye_spelling, tags=(OpTags.DEFAULT_DTYPE,), vjp=NONDIFFERENTIABLE)
def eye(n: int, m: int, *, dtype: Any = None, device: Any = None) -> TensorProxy:
    """Ones on the diagonal, zeros elsewhere."""
    if n < 0 or m < 0:
        raise OperatorError(f"n must be greater or equal to 0, got {n}")
    where, shape = default_device(device), (n, m)
    rows = prims.iota(shape[0], start=0, step=1, device=where, dtype=int64)
    columns = prims.iota(shape[1], start=0, step=1, device=where, dtype=int64)
    rows = prims.broadcast_in_dim(rows, shape, (0,))
    columns = prims.broadcast_in_dim(columns, shape, (1,))
    return prims.convert_element_type(prims.eq(rows, columns), default_dtype(dtype))


# -- compositions --------------------------------------------------------------------------------------------


@torchsymbol("torch.complex")
def complex_(real: TensorProxy, imag: TensorProxy) -> TensorProxy:
    """A complex tensor of two real ones."""
    if real.dtype is not imag.dtype or not real.dtype.is_floating_point:
        raise OperatorError(f"Expected object of scalar type {real.dtype} but got scalar type {imag.dtype}")
    a, b = operands(real, imag)
    last = len(a.shape)
    return prims.view_as_complex(prims.cat([unsqueeze(a, last), unsqueeze(b, last)], last))


@torchsymbol(
    "torch.meshgrid",
    spelling=lambda *tensors, indexing="ij": (unpacked(tensors), {"indexing": indexing}),
    tags=(OpTags.MAYBE_VIEW,),
)
def meshgrid(*tensors: TensorProxy, indexing: str = "ij") -> tuple[TensorProxy, ...]:
    """Each vector along one dimension; ``"xy"`` exchanges the first two."""
    if indexing not in ("ij", "xy"):
        raise OperatorError(f'torch.meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}')
    if not tensors:
        raise OperatorError("meshgrid expects a non-empty TensorList")
    if len({t.dtype for t in tensors}) > 1:
        raise OperatorError("meshgrid expects all tensors to have the same dtype")
    if len({t.device for t in tensors}) > 1:
        raise OperatorError("meshgrid expects all tensors to have the same device")
    lengths = [math.prod(t.shape) for t in tensors]
    places = list(range(len(tensors)))
    if indexing == "xy" and len(tensors) > 1:
        places[0], places[1] = 1, 0
    shape = tuple(lengths[p] for p in places)
    return tuple(
        prims.broadcast_in_dim(prims.reshape(t, (n,)) if not t.shape else t, shape, (places.index(i),))
        for i, (t, n) in enumerate(zip(tensors, lengths, strict=True))
    )


def _one_hot_spelling(tensor: TensorProxy, num_classes: int = -1) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if num_classes == -1:
        if not math.prod(tensor.shape):
            raise OperatorError("Can not infer total number of classes from empty tensor.")
        largest = as_size(amax(tensor, ()))
        num_classes = -1 if largest is UNDECIDED else largest + 1
    return (tensor, num_classes), {}


@torchsymbol(
    "torch.nn.functional.one_hot",
    tags=(OpTags.RAISES_ON_DATA,),
    spelling=_one_hot_spelling,
    vjp=NONDIFFERENTIABLE,
)
def one_hot(tensor: TensorProxy, num_classes: int = -1) -> TensorProxy:
    """1 at each index of a new last dimension, 0 elsewhere."""
    if num_classes == -1:
        raise UnsupportedOperator(
            "torch.nn.functional.one_hot without num_classes gives a shape that depends on data",
            hint="Give num_classes.",
        )
    if tensor.dtype is not int64:
        raise OperatorError(
            f"one_hot is only applicable to index tensor of type LongTensor, not {tensor.type_string()}"
        )
    shape = (*tensor.shape, num_classes)
    rank = len(tensor.shape)
    classes = prims.iota(num_classes, start=0, step=1, device=tensor.device, dtype=int64)
    index = prims.broadcast_in_dim(tensor, shape, tuple(range(rank)))
    hit = prims.eq(index, prims.broadcast_in_dim(classes, shape, (rank,)))
    return prims.convert_element_type(hit, int64)
