"""Creation of tensors from Python data: numbers, nested lists of numbers, and tensors."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import to_dtype
from thunder.base.errors import OperatorError, UnsupportedOperator, UnsupportedProgram
from thunder.base.torch_versions import ASARRAY_KEEPS_GRADIENTS
from thunder.ir.proxies import TensorProxy, pytype
from thunder.ops import prims
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.promotion import number_dtype
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.casts import detach, to
from thunder.torch.rows.creation import default_device, default_dtype


def _numbers(data: Any) -> Iterator[Any]:
    if isinstance(data, list | tuple):
        for item in data:
            yield from _numbers(item)
    else:
        yield data


def _data_dtype(data: Any) -> Dtype:
    kinds = {number_dtype(pytype(x)) for x in _numbers(data)}
    if not kinds:
        return default_dtype(None)
    wide: torch.dtype | None = None
    for kind in kinds:
        wide = kind.torch_dtype if wide is None else torch.promote_types(wide, kind.torch_dtype)
    return to_dtype(wide)


def _of_tensors(data: Any, *, dtype: Any = None, device: Any = None, **options: Any) -> Any:
    """Return a tensor of a list of numbers and of tensors of one element, whose numbers torch takes.

    The other options, such as ``requires_grad``, are checked by ``torch.tensor`` itself.
    """
    if isinstance(data, TensorProxy) or not any(isinstance(x, TensorProxy) for x in _numbers(data)):
        return NotImplemented
    tensors = [x for x in _numbers(data) if isinstance(x, TensorProxy)]
    if any(x.shape for x in tensors):
        raise UnsupportedOperator(
            "torch.tensor of a list of tensors that have dimensions",
            found={x.name: f'"{x.type_string()}"' for x in tensors if x.shape},
            hint="Use torch.stack, or item() for a tensor of one element.",
        )
    wide: Any = None
    for x in _numbers(data):
        kind = x.dtype if isinstance(x, TensorProxy) else number_dtype(pytype(x))
        wide = kind.torch_dtype if wide is None else torch.promote_types(wide, kind.torch_dtype)
    result_type, where = to_dtype(wide if dtype is None else dtype), default_device(device)
    if not result_type.is_inexact and any(x.dtype.is_inexact for x in tensors):
        raise OperatorError("only integer tensors of a single element can be converted to an index")

    def build(part: Any) -> TensorProxy:
        if isinstance(part, list | tuple):
            return ltorch.stack([build(p) for p in part])
        if isinstance(part, TensorProxy):
            return detach(to(part, where, result_type))
        return prims.full((), part, device=where, dtype=result_type)

    return build(data)


@torchsymbol("torch.tensor", other_forms=_of_tensors, vjp=NONDIFFERENTIABLE)
def tensor(data: Any, *, dtype: Any = None, device: Any = None) -> TensorProxy:
    """A tensor from a number or nested lists of numbers; from a tensor, a detached copy."""
    if isinstance(data, TensorProxy):
        return prims.clone(prims.detach(to(data, device, dtype)))
    for x in _numbers(data):
        if not isinstance(x, bool | int | float | complex) and pytype(x) is type(x):
            raise UnsupportedOperator(
                f"torch.tensor of {type(x).__name__} objects",
                hint="Use torch.stack for a list of tensors, and lists of numbers otherwise.",
            )
    result_type = _data_dtype(data) if dtype is None else to_dtype(dtype)
    where = default_device(device)
    if isinstance(data, list | tuple):
        return prims.tensor_from_sequence(data, dtype=result_type, device=where)
    return prims.full((), data, device=where, dtype=result_type)


@torch_names("torch.as_tensor")
def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> TensorProxy:
    """``tensor``, except that a tensor with the dtype and device is returned itself."""
    if isinstance(data, TensorProxy):
        return to(data, device, dtype)
    return tensor(data, dtype=dtype, device=device)


@torch_names("torch.asarray")
def asarray(obj: Any, *, dtype: Any = None, device: Any = None) -> TensorProxy:
    """``as_tensor``, whose result does not require grad in older versions of torch.

    Those clear ``requires_grad`` of a leaf that has the dtype and device; that is refused.
    """
    result = as_tensor(obj, dtype, device)
    if ASARRAY_KEEPS_GRADIENTS or not result.requires_grad:
        return result
    if result is obj and obj.declared_leaf is not None:
        raise UnsupportedProgram(
            "torch.asarray of this version of torch would set requires_grad of its argument to False",
            found={obj.name: f'"{obj.type_string()}"'},
            hint="Use torch.as_tensor, or detach().",
        )
    return detach(result)


@torch_names(methods=("new_tensor",))
def new_tensor(input: TensorProxy, data: Any, *, dtype: Any = None, device: Any = None) -> TensorProxy:
    """``tensor`` with the input's dtype and device."""
    return tensor(
        data, dtype=input.dtype if dtype is None else dtype, device=input.device if device is None else device
    )
