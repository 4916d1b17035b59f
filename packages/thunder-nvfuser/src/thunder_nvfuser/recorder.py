"""A definition that is recorded: the interface of `nvfuser_direct.FusionDefinition`, replayed by torch.

    with RecordedDefinition() as fd:
        t0 = fd.define_tensor(shape=[-1, -1], contiguity=[True, True], dtype=DataType.Float)
        fd.add_output(fd.ops.exp(t0))
    (result,) = fd.execute([x])

Each call is checked against the table of the library's operations. `str(fd)` is the definition as a program,
and `execute` computes it by torch, on any device: this checks what is said to nvFuser, not what nvFuser does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from .data_types import DataType
from .operations import OPERATIONS
from .replay import REPLAY

__all__ = ["RecordedDefinition", "Value", "check_call"]


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor or scalar of a definition: its name, dtype and, for a tensor, number of dimensions.

    The sizes are those that the definition states: -1 for one that it does not.
    """

    name: str
    dtype: torch.dtype
    is_tensor: bool = True

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Call:
    """A recorded call: the results, the method with its dotted name, and the arguments."""

    results: tuple[Value, ...]
    method: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        arguments = [*map(_shown, self.args), *(f"{name}={_shown(x)}" for name, x in self.kwargs.items())]
        results = ", ".join(value.name for value in self.results)
        return f"{results + ' = ' if results else ''}fd.{self.method}({', '.join(arguments)})"


def _shown(x: Any) -> str:
    """Return an argument as Python writes it; infinities and NaN have no literal."""
    return f"float('{x}')" if isinstance(x, float) and not math.isfinite(x) else repr(x)


def check_call(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise TypeError unless an overload of an operation of the library takes these arguments."""
    overloads = OPERATIONS.get(name)
    if overloads is None:
        raise TypeError(f"nvfuser_direct has no operation {name!r}")
    if not any(_takes(overload, len(args), set(kwargs)) for overload in overloads):
        given = ", ".join([*("_" for _ in args), *(f"{keyword}=" for keyword in kwargs)])
        raise TypeError(f"{name}({given}) fits none of: {'; '.join(f'{name}({o})' for o in overloads)}")


def _takes(overload: str, count: int, keywords: set[str]) -> bool:
    positional, _, named = overload.partition("*, ") if "*" in overload else (overload, "", "")
    parameters = [p for p in positional.split(", ") if p.rstrip(", ")]
    if count > len(parameters):
        return False
    rest = [p.rstrip(", ") for p in parameters[count:]] + [p for p in named.split(", ") if p]
    required = {p for p in rest if not p.endswith("=")}
    return required <= keywords <= {p.rstrip("=") for p in rest}


class _Operations:
    """The operations of a definition, as methods that record calls."""

    def __init__(self, definition: RecordedDefinition) -> None:
        self._definition = definition

    def __getattr__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            check_call(name, args, kwargs)
            return self._definition.record(name, args, kwargs)

        return call


class RecordedDefinition:
    """A definition whose calls are recorded, and run by torch."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.inputs: list[Value] = []
        self.outputs: list[Value] = []
        self.ops = _Operations(self)
        self._count = 0

    def __enter__(self) -> RecordedDefinition:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def __str__(self) -> str:
        return "\n".join(["def nvfuser_fusion(fd):", *(f"    {call}" for call in self.calls)])

    def define_tensor(
        self,
        shape: Sequence[int],
        contiguity: Sequence[bool | None],
        dtype: DataType = DataType.Float,
        is_cpu: bool = False,
        stride_order: Sequence[int] = (),
    ) -> Value:
        """Define a tensor input; -1 is a size that is not stated.

        Raises TypeError for arguments that do not fit each other, as the library does.
        """
        if len(contiguity) != len(shape) or (stride_order and len(stride_order) != len(shape)):
            raise TypeError(f"{shape}, {contiguity} and {stride_order} of an input differ in length")
        for size, flag in zip(shape, contiguity, strict=True):
            if (size == 1) != (flag is None):
                raise TypeError(f"contiguity {contiguity} of shape {shape}: None is for sizes of 1 alone")
        value = self._new(dtype.value)
        self.inputs.append(value)
        kwargs: dict[str, Any] = {"shape": list(shape), "contiguity": list(contiguity), "dtype": dtype}
        if is_cpu:
            kwargs["is_cpu"] = True
        if stride_order:
            kwargs["stride_order"] = list(stride_order)
        self.calls.append(Call((value,), "define_tensor", (), kwargs))
        return value

    def define_scalar(self, value: Any = None, dtype: DataType = DataType.Double) -> Value:
        """Define a number: a constant, or an input if `value` is None."""
        result = Value(f"c{self._next()}", dtype.value, is_tensor=False)
        if value is None:
            self.inputs.append(result)
        self.calls.append(Call((result,), "define_scalar", (value,), {"dtype": dtype}))
        return result

    def add_output(self, value: Value) -> None:
        """Make a value a result."""
        self.outputs.append(value)
        self.calls.append(Call((), "add_output", (value,)))

    def record(self, name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        """Append the call of an operation, and return its results with the library's dtypes.

        Raises TypeError for an operation that the recorder does not compute.
        """
        replayed = REPLAY.get(name)
        if replayed is None:
            raise TypeError(f"the recorder does not compute {name}")
        dtypes = replayed.dtypes(*args, **kwargs)
        several = isinstance(dtypes, tuple)
        is_tensor = not replayed.is_number and (
            replayed.creates or any(_is_tensor(x) for x in (*args, *kwargs.values()))
        )
        results = tuple(self._new(dtype, is_tensor) for dtype in (dtypes if several else (dtypes,)))
        self.calls.append(Call(results, f"ops.{name}", args, kwargs))
        return results if several else results[0]

    def execute(self, inputs: Sequence[Any], **options: Any) -> list[torch.Tensor]:
        """Return the results for these tensors and numbers, computed by torch; options are not used.

        Raises TypeError for another number of inputs.
        """
        if len(inputs) != len(self.inputs):
            raise TypeError(f"the definition has {len(self.inputs)} inputs, and got {len(inputs)}")
        values: dict[str, Any] = {}
        remaining = iter(inputs)
        device = next((x.device for x in inputs if isinstance(x, torch.Tensor)), torch.device("cpu"))

        def actual(x: Any) -> Any:
            if isinstance(x, Value):
                return values[x.name]
            if isinstance(x, list | tuple):
                return [actual(part) for part in x]
            return x.value if isinstance(x, DataType) else x

        for call in self.calls:
            if call.method == "define_tensor":
                values[call.results[0].name] = _checked(call, next(remaining))
            elif call.method == "define_scalar":
                (value,) = call.args
                values[call.results[0].name] = next(remaining) if value is None else value
            elif call.method.startswith("ops."):
                kwargs = {name: actual(x) for name, x in call.kwargs.items()}
                entry = REPLAY[call.method.removeprefix("ops.")]
                if entry.creates:
                    kwargs["device"] = device
                results = entry.compute(*map(actual, call.args), **kwargs)
                several = results if len(call.results) > 1 else (results,)
                for value, result in zip(call.results, several, strict=True):
                    values[value.name] = result.to(value.dtype) if value.is_tensor else result
        return [values[output.name] for output in self.outputs]

    def _new(self, dtype: torch.dtype, is_tensor: bool = True) -> Value:
        return Value(f"{'t' if is_tensor else 'c'}{self._next()}", dtype, is_tensor)

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


def _is_tensor(argument: Any) -> bool:
    """Return whether an argument is a tensor, or a list with one."""
    if isinstance(argument, list | tuple):
        return any(map(_is_tensor, argument))
    return isinstance(argument, Value) and argument.is_tensor


def _checked(call: Call, tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor that fits the definition of an input; raise TypeError for another."""
    shape, dtype = call.kwargs["shape"], call.kwargs["dtype"].value
    fits = len(shape) == tensor.ndim and all(
        (s == size) or (s == -1 and size != 1) for s, size in zip(shape, tensor.shape, strict=True)
    )
    if not fits or tensor.dtype is not dtype:
        raise TypeError(f"{call} got a tensor of shape {tuple(tensor.shape)} and {tensor.dtype}")
    _check_layout(call, tensor)
    return tensor


def _check_layout(call: Call, tensor: torch.Tensor) -> None:
    """Raise TypeError if the strides of a tensor are not those that its definition promises."""
    order = call.kwargs.get("stride_order") or range(tensor.ndim - 1, -1, -1)
    dims = sorted(range(tensor.ndim), key=lambda d: -order[d])
    expected = 1
    for position in range(tensor.ndim - 1, -1, -1):
        d, flag = dims[position], call.kwargs["contiguity"][position]
        if flag is None:
            continue
        if flag and tensor.stride(d) != expected:
            raise TypeError(f"{call} got strides {tensor.stride()}")
        expected = tensor.stride(d) * tensor.shape[d]
