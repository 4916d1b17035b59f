"""Broadcasting: operands in one shape, one dtype and on one device before a primitive."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any

from thunder.base.devices import to_device
from thunder.base.dtypes import dtype as Dtype
from thunder.base.errors import OperatorError
from thunder.ir.proxies import NumberProxy, TensorProxy, pytype
from thunder.ir.symbolic_sizes import SymbolicInt, are_same
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.prims.linalg import broadcast_shapes
from thunder.ops.promotion import number_dtype, result_dtype, same_result
from thunder.ops.torch_errors import OperatorIndexError, OperatorTypeError

Shape = tuple[int, ...]
Number = int | float | complex | NumberProxy


def broadcast_to_shape(a: TensorProxy, shape: Shape) -> TensorProxy:
    """Broadcast ``a`` to a shape; its dimensions are the last ones."""
    if are_same(a.shape, tuple(shape)):
        return a
    lead = len(shape) - len(a.shape)
    return prims.broadcast_in_dim(a, shape, tuple(range(lead, len(shape))))


def common_shape(shapes: Sequence[Shape]) -> Shape:
    """Return the shape to which all shapes broadcast. Raises OperatorError."""
    common = shapes[0]
    for shape in shapes[1:]:
        if shape != common:
            common = broadcast_shapes(common, shape)
    return common


def on_one_device(tensors: Sequence[TensorProxy]) -> list[TensorProxy]:
    """Return the tensors on one device. Only CPU tensors without dimensions move.

    Raises OperatorError for tensors on different devices.
    """
    device = tensors[0].device
    if all(t.device is device for t in tensors):
        return list(tensors)
    device = next((t.device for t in tensors if t.shape or t.device.type != "cpu"), device)
    for t in tensors:
        if t.device is not device and (t.shape or t.device.type != "cpu"):
            raise OperatorError(
                "Expected all tensors to be on the same device, "
                f"but found at least two devices, {device} and {t.device}!"
            )
    return [t if t.device is device else prims.device_put(t, device) for t in tensors]


def operands(a: Any, b: Any, rule: Callable[[Dtype], Dtype] = same_result) -> tuple[Any, Any]:
    """Return both operands in the shape, dtype and device of a binary primitive.

    A Python number stays one.
    """
    dtype = rule(result_dtype(a, b))
    if not isinstance(a, TensorProxy) and not isinstance(b, TensorProxy):
        a = tensor_of(a)
    if isinstance(a, TensorProxy):
        if not isinstance(b, TensorProxy):
            return cast(a, dtype), b
        if a.device is not b.device:
            a, b = on_one_device((a, b))
        if len(a.shape) != len(b.shape) or a.shape != b.shape:
            shape = broadcast_shapes(a.shape, b.shape)
            a, b = broadcast_to_shape(a, shape), broadcast_to_shape(b, shape)
        return cast(a, dtype), cast(b, dtype)
    return a, cast(b, dtype)


def tensor_of(number: Number) -> TensorProxy:
    """Return the tensor that torch makes of a number operand: ``torch.add(2, 3)``."""
    return prims.full((), number, device=to_device("cpu"), dtype=number_dtype(pytype(number)))


def all_operands(*values: Any, rule: Callable[[Dtype], Dtype] = same_result) -> list[Any]:
    """Return operands in one shape, dtype and device; Python numbers stay numbers."""
    dtype = rule(result_dtype(*values))
    tensors = on_one_device([v for v in values if isinstance(v, TensorProxy)])
    shape = common_shape([t.shape for t in tensors])
    ready = iter([broadcast_to_shape(cast(t, dtype), shape) for t in tensors])
    return [next(ready) if isinstance(v, TensorProxy) else v for v in values]


def require_tensor(name: str, *values: Any) -> None:
    """Raise torch's TypeError for a value that is not a tensor."""
    for value in values:
        if not isinstance(value, TensorProxy):
            raise OperatorTypeError(f"{name}(): argument must be Tensor, not {type(value).__name__}")


def integers(value: Any) -> tuple[int, ...]:
    """Return one integer, or a sequence of them, as a tuple.

    Raises DataDependentControlFlow for a tensor.
    """
    if isinstance(value, int | SymbolicInt):
        return (value,)  # type: ignore[return-value]  # a size is an integer
    return (operator.index(value),) if isinstance(value, Integral | TensorProxy) else tuple(value)


def canonical_dim(dim: int, rank: int) -> int:
    """Return the dimension counted from the front; a tensor of rank 0 has dimension 0.

    Raises IndexError as torch does.
    """
    rank = rank or 1
    if not -rank <= dim < rank:
        raise OperatorIndexError(
            f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})"
        )
    return operator.index(dim % rank)  # which dimension it is fixes a symbol


def canonical_dims(dims: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Return the dimensions counted from the front; None and ``()`` mean all of them.

    Raises OperatorError for a repeated dimension.
    """
    if dims is None:
        return tuple(range(rank))
    canonical = tuple(canonical_dim(d, rank) for d in integers(dims))
    if len(set(canonical)) != len(canonical):
        raise OperatorError(f"dim {canonical} appears multiple times in the list of dims")
    return (canonical if rank else ()) if canonical else tuple(range(rank))
