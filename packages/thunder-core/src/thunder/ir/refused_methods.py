"""Methods of a tensor that need its data, which a tensor proxy does not have."""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import torch

from thunder.base.errors import DataDependentControlFlow, UnsupportedProgram
from thunder.ir.recorder import PLAIN, UNDECIDED, Recorder
from thunder.ir.trace_context import get_tracectx

if TYPE_CHECKING:
    from thunder.ir.proxies import TensorProxy


def current_recorder() -> Recorder:
    """Return the recorder of the current trace; without a trace, the one that knows no values."""
    trace = get_tracectx()
    return PLAIN if trace is None else trace.recorder


def constant_value(x: TensorProxy) -> torch.Tensor | None:
    """Return the value of a tensor of the current trace that depends on no input, else None.

    The value is on the CPU. Only the recorder of a program that is being acquired computes values.
    """
    return current_recorder().constant_value(x)


def decided(question: str, *operands: Any) -> Any:
    """Return the answer to a question about data that the current trace is for, or UNDECIDED."""
    return current_recorder().decide(question, operands)


def as_size(number: Any) -> Any:
    """Return an integer of the current trace as a size or position, or UNDECIDED."""
    return current_recorder().as_size(number)


def elements(x: TensorProxy) -> Any:
    """Return the elements of a tensor of the current trace as nested tuples, or UNDECIDED.

    They are sizes that the computation finds, or a decision.
    """
    return current_recorder().elements(x)


#: name of a method that asks for the value of a tensor → the operation in words, and its function
_ASKING: Final[dict[str, tuple[str, Callable[..., Any]]]] = {
    "__bool__": ("bool(tensor)", bool),
    "__int__": ("int(tensor)", int),
    "__float__": ("float(tensor)", float),
    "__complex__": ("complex(tensor)", complex),
    "__index__": ("index(tensor)", operator.index),
    "__contains__": ("x in tensor", operator.contains),
    "is_nonzero": ("tensor.is_nonzero()", torch.Tensor.is_nonzero),
}


def answer(recorder: Recorder, name: str, x: TensorProxy, *args: Any) -> Any:
    """Return what a method returns that asks for the value of a tensor.

    The recorder knows the value, or decides the question; else DataDependentControlFlow is raised.
    """
    operation, read = _ASKING[name]
    value = recorder.constant_value(x)
    if value is not None:
        return read(value, *args)
    found = recorder.decide(name.strip("_"), (x, *args))
    if found is not UNDECIDED:
        return found
    raise DataDependentControlFlow(
        f"{operation} asks for the value of a tensor, which is not known while the program is traced",
        found=f'{x.name}: "{x.type_string()}"',
        hint="Use torch.where or another tensor operation, or move the test out of the compiled function.",
    )


def _asking(name: str) -> Callable[..., Any]:
    """Return the method by which native code asks for the value of a tensor of the current trace."""

    def method(self: TensorProxy, *args: Any) -> Any:
        return answer(current_recorder(), name, self, *args)

    return method


def _takes_data_out(operation: str, read: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a method that raises UnsupportedProgram.

    With ``read`` it returns ``read(value, …)`` where the trace can compute the value.
    """

    def method(self: TensorProxy, *args: Any, **kwargs: Any) -> Any:
        value = constant_value(self) if read is not None else None
        if read is not None and value is not None:
            return read(value, *args, **kwargs)
        raise UnsupportedProgram(
            f"{operation} takes the data of a tensor out of the program",
            found=f'{self.name}: "{self.type_string()}"',
            hint="Return the tensor and convert it after the call.",
        )

    return method


#: elements of the largest tensor whose values are one decision
MOST_DECIDED: Final = 1 << 10
_refuse_tolist = _takes_data_out("tensor.tolist()", torch.Tensor.tolist)


def _tolist(self: TensorProxy) -> Any:
    """Return the elements of a tensor as nested lists."""
    return _lists(self, elements)


def decided_values(x: TensorProxy) -> Any:
    """Return the elements of a tensor as nested lists of numbers: they are one decision."""
    return _lists(x, partial(decided, "tolist"))


def _lists(x: TensorProxy, find: Callable[[TensorProxy], Any]) -> Any:
    """Return elements that a trace knows as nested lists; raise UnsupportedProgram for too many of them."""
    if constant_value(x) is None and x.numel <= MOST_DECIDED:
        found = find(x)
        if found is not UNDECIDED:
            return _as_lists(found)
    return _refuse_tolist(x)


def _as_lists(part: Any) -> Any:
    return [_as_lists(p) for p in part] if isinstance(part, tuple) else part


#: name of a method of ``torch.Tensor`` that needs data → the method of ``TensorProxy`` in its place
REFUSED_METHODS: dict[str, Callable[..., Any]] = {
    **{name: _asking(name) for name in _ASKING},
    "tolist": _tolist,
    "numpy": _takes_data_out("tensor.numpy()"),
    "__array__": _takes_data_out("numpy.asarray(tensor)"),
    "__dlpack__": _takes_data_out("tensor.__dlpack__()"),
    "data_ptr": _takes_data_out("tensor.data_ptr()"),
    "untyped_storage": _takes_data_out("tensor.untyped_storage()"),
    "__deepcopy__": _takes_data_out("copy.deepcopy(tensor)"),
    "__reduce_ex__": _takes_data_out("pickling a tensor"),
}
