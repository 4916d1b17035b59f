"""Arrays as arguments of torch, and arrays of tensors, see Note [Arrays].

torch.from_numpy(a), torch.as_tensor(a)    an input or a constant that shares the memory of the array
torch.tensor(a), x.new_tensor(a)           a copy of it
x[a]                                       an index
t.numpy()                                  an array that shares the memory of the tensor
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.arrays.array_memory import copied, is_array
from thunder.frontend.arrays.traced_arrays import Arrays, TracedArray, arrays_in
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.natives.libraries import is_numpy_scalar
from thunder.frontend.places import MAKES_ARRAY
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.refused_methods import REFUSED_METHODS
from thunder.ir.requires_grad import requires_grad

__all__ = [
    "TABLE",
    "TAKING_ARRAYS",
    "array_of",
    "array_view",
    "tensor_of_array",
    "with_tensor_index",
]

TABLE = LookasideTable(MAKES_ARRAY)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: elements of the largest array that is written into the trace as numbers
_LARGEST_LITERAL: Final = 64


# -- from arrays to tensors ----------------------------------------------------------------------------------


@TABLE.lookaside(torch.from_numpy)
def _from_numpy(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    if not args or not is_array(args[0]):
        return torch.from_numpy(*args, **kwargs)  # raises TypeError, as in eager
    return _sharing(session, *args, **kwargs)


def _sharing(session: TracingSession, array: Any) -> Any:
    """Return the tensor that shares the memory of an array."""
    torch.from_numpy(array)  # raises for some dtypes, and for negative strides
    arrays = session.state(Arrays)
    traced = arrays.owner_of(array)
    if traced is None:
        tensor = _constant_tensor(session, _known(session, array))
        arrays.share(array, tensor)
        return tensor
    if traced.path is not None:
        tensor = _input(session, traced)
        return tensor if array is traced.array else _view(session, traced, tensor, array)
    if array is traced.array:
        traced.is_private = False
        return _alias(session, traced.tensor)
    raise UnsupportedProgram(
        "the program makes a tensor of a part of an array whose memory another tensor shares",
        hint="Take the part of the tensor, or make a tensor of a copy.",
    )


def _input(session: TracingSession, traced: TracedArray) -> Any:
    """Return the input that shares the memory of an array of the user."""
    objects = session.objects
    if traced.is_written:
        raise UnsupportedProgram(
            "the program makes a tensor that shares the memory of an array which it has written before",
            hint="Make the tensor first, or of a copy.",
        )
    if traced.tensor is not None:
        return _alias(session, traced.tensor)
    assert traced.path is not None, "the array is the user's"
    tensor = objects.adopt(torch.from_numpy(traced.original), traced.path.step("array", None))
    traced.tensor, traced.start = tensor, len(session.trace.bound_symbols)
    entry = objects.entries[id(traced.array)]
    objects.unread[id(traced.array)] = entry
    return tensor


def _alias(session: TracingSession, tensor: Any) -> Any:
    return session.call(torch.Tensor.detach, (tensor,), {})


def _view(session: TracingSession, traced: TracedArray, tensor: Any, array: Any) -> Any:
    """Return the part of a tensor that shares the memory of a part of its array."""
    size = array.itemsize
    offset = array.__array_interface__["data"][0] - traced.array.__array_interface__["data"][0]
    if array.dtype != traced.array.dtype or any(s % size or s < 0 for s in (offset, *array.strides)):
        raise UnsupportedProgram(
            "the program makes a tensor of an array that shows the memory of another one backwards, or with "
            "another dtype",
            hint="Make the tensor of a copy.",
        )
    if traced.array.flags.c_contiguous:
        memory = session.call(torch.Tensor.view, (tensor, -1), {})
    else:
        memory = session.call(torch.as_strided, (tensor, (_span(traced.array),), (1,)), {})
    part = session.call(torch.narrow, (memory, 0, offset // size, _span(array)), {})
    strides = tuple(s // size for s in array.strides)
    if strides == torch.empty(array.shape, device="meta").stride():
        return session.call(torch.Tensor.view, (part, array.shape), {})
    return session.call(torch.as_strided, (part, array.shape, strides), {})


def _span(array: Any) -> int:
    """Return how many elements there are from the first of an array to its last in memory."""
    if array.size == 0:
        return 0
    last: int = sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))
    return 1 + last // int(array.itemsize)


def array_view(session: TracingSession, traced: TracedArray, view: Any) -> Any:
    """Return an array in the memory of that of a tensor, not filled yet, as ``view`` is in that of its array.

    Raises UnsupportedProgram for one of another dtype, or with negative strides.
    """
    return _array_in(session, traced, _view(session, traced, traced.tensor, view))


def array_attribute(session: TracingSession, traced: TracedArray, name: str) -> Any:
    """Return an attribute of the array of a tensor that is a view of it, or None for another one."""
    if name in ("T", "mT"):
        return array_view(session, traced, getattr(traced.array, name))
    if name in ("real", "imag") and traced.array.dtype.kind == "c":
        return _array_in(session, traced, session.call(getattr(torch, name), (traced.tensor,), {}))
    return traced.array if name == "real" else None


def _array_in(session: TracingSession, traced: TracedArray, tensor: Any) -> Any:
    """Return the array of a tensor that shows the memory of another array."""
    traced.is_private = False
    return session.state(Arrays).of_tensor(tensor, session.call(torch.Tensor.stride, (tensor,), {}))


def _constant_tensor(session: TracingSession, value: torch.Tensor) -> Any:
    """Return a new tensor with the elements of one that is known while the program is traced."""
    if 0 < value.numel() <= _LARGEST_LITERAL:
        options = {"dtype": value.dtype, "device": torch.device("cpu")}
        return session.call(torch.tensor, (value.tolist(),), options)
    held = session.adopt(value, session.object_root(value, "constant"))
    return session.call(torch.clone, (held,), {})


def _known(session: TracingSession, data: Any) -> torch.Tensor:
    """Return torch's tensor of arrays and numbers that the program reads."""
    for array in arrays_in((data,)):
        _read(session, array)
    return torch.from_numpy(copied(data)) if is_array(data) else torch.tensor(data)


def _unread(session: TracingSession, data: Any) -> Any:
    """Return the tensor in whose place the program has an array that it has not read, or None."""
    traced = session.state(Arrays).of(data)
    if traced is None or traced.content is not None:
        return None
    return _input(session, traced) if traced.path is not None else traced.tensor


def _copy(session: TracingSession, data: Any, options: Kwargs) -> Any:
    """Return a new tensor with the elements of ``data``, an array or a list of arrays."""
    if is_array(data):
        torch.from_numpy(data)  # raises for some dtypes, and for negative strides
    tensor = _unread(session, data) if is_array(data) else None
    if tensor is not None:
        return session.call(torch.Tensor.to, (_alias(session, tensor),), options | {"copy": True})
    return _converted(session, _constant_tensor(session, _known(session, data)), options)


def _shared(session: TracingSession, data: Any, options: Kwargs) -> Any:
    """Return a tensor of ``data`` that shares the memory of an array where torch lets it."""
    tensor = _sharing(session, data) if is_array(data) else _copy(session, data, {})
    return _converted(session, tensor, options)


def _converted(session: TracingSession, tensor: Any, options: Kwargs) -> Any:
    return session.call(torch.Tensor.to, (tensor,), options) if options else tensor


def _read(session: TracingSession, array: Any) -> None:
    arrays = session.state(Arrays)
    traced = arrays.of(array)
    if traced is not None:
        arrays.read(traced)
    else:
        arrays.check_read(array)


def _options(
    session: TracingSession, dtype: Any = None, device: Any = None, *, pin_memory: bool = False
) -> Kwargs:
    """Return the dtype and device that a function of torch converts an array to."""
    if pin_memory:
        raise UnsupportedProgram("a tensor of an array in pinned memory", hint="Leave out pin_memory.")
    if device is None:
        device = session.call(torch.get_default_device, (), {})
    given = {"dtype": dtype, "device": None if torch.device(device).type == "cpu" else device}
    return {name: value for name, value in given.items() if value is not None}


def _of_tensor(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    (data,), options = args, _options(session, **kwargs)
    return _copy(session, data, options)


def _of_as_tensor(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    data, *rest = args
    return _shared(session, data, _options(session, *rest, **kwargs))


def _of_asarray(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    (data,) = args
    make = _copy if kwargs.pop("copy", None) else _shared
    return make(session, data, _options(session, **kwargs))


def _of_new_tensor(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    x, data = args
    own = {name: session.load_attr(x, name) for name in ("dtype", "device")}
    return _copy(session, data, _options(session, **own | kwargs))


def _of_getitem(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    x, key = args
    return session.call(torch.Tensor.__getitem__, (x, with_tensor_index(session, key)), {})


#: functions of torch that take an array → the position and name of that, and what makes the tensor
TAKING_ARRAYS: Final[dict[int, tuple[int, str, Callable[[TracingSession, Args, Kwargs], Any]]]] = {
    id(torch.tensor): (0, "data", _of_tensor),
    id(torch.as_tensor): (0, "data", _of_as_tensor),
    id(torch.asarray): (0, "obj", _of_asarray),
    id(torch.Tensor.new_tensor): (1, "data", _of_new_tensor),
    id(torch.Tensor.__getitem__): (1, "key", _of_getitem),
}
_FROM_NUMPY: Final = id(torch.from_numpy)
TABLE.taking_unread.update(TAKING_ARRAYS, (_FROM_NUMPY,))


def tensor_of_array(session: TracingSession, fn: Any, args: Args, kwargs: Kwargs) -> Any:
    """Return the tensor that a function of torch makes of an array or a list of arrays, else None."""
    position, name, make = TAKING_ARRAYS[id(fn)]
    if len(args) == position and name in kwargs:
        args, kwargs = (*args, kwargs[name]), {k: v for k, v in kwargs.items() if k != name}
    if len(args) <= position or not _has_array(args[position]):
        return None
    needs_grad = kwargs.get("requires_grad", False)
    tensor = make(session, args, {k: v for k, v in kwargs.items() if k != "requires_grad"})
    return session.call(torch.Tensor.requires_grad_, (tensor, True), {}) if needs_grad else tensor


def _has_array(data: Any) -> bool:
    if type(data) in (list, tuple):
        return any(map(_has_array, data))
    return is_array(data) or is_numpy_scalar(data)


# -- indices -------------------------------------------------------------------------------------------------


def with_tensor_index(session: TracingSession, key: Any) -> Any:
    """Return the index of a tensor with tensors in place of arrays."""
    if type(key) is tuple:
        return tuple(with_tensor_index(session, k) for k in key)
    return _copy(session, key, {}) if is_array(key) else key


# -- from tensors to arrays ----------------------------------------------------------------------------------


@TABLE.lookaside(REFUSED_METHODS["numpy"], torch.Tensor.numpy)
def _numpy(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    def numpy(x: Any, *, force: bool = False) -> tuple[Any, bool]:
        return x, force

    x, force = numpy(*args, **kwargs)
    if force:
        x = session.call(torch.Tensor.cpu, (session.call(torch.Tensor.detach, (x,), {}),), {})
    return array_of(session, x)


@TABLE.lookaside(REFUSED_METHODS["__array__"], torch.Tensor.__array__)
def _as_array(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    x, *dtype = args
    array = array_of(session, x)
    return session.call(array.astype, tuple(dtype), kwargs | {"copy": False}) if dtype or kwargs else array


def array_of(session: TracingSession, x: TensorProxy) -> Any:
    """Return the array of a tensor; raises what torch raises for a tensor that has none."""
    if requires_grad(x) and torch.is_grad_enabled():
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead."
        )
    if x.device.type != "cpu":
        raise TypeError(
            f"can't convert {x.device.device_str()} device type tensor to numpy. Use Tensor.cpu() to copy "
            "the tensor to host memory first."
        )
    if not session.place.allows(MAKES_ARRAY):
        return REFUSED_METHODS["numpy"](x)
    if requires_grad(x):
        x = session.call(torch.Tensor.detach, (x,), {})
    return session.state(Arrays).of_tensor(x, session.call(torch.Tensor.stride, (x,), {}))
