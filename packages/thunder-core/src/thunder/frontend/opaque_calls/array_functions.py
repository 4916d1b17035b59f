"""NumPy's functions on arrays of tensors: opaque calls and views.

Note [Arrays of tensors]
The elements of ``t.numpy()`` are not known while a program is traced, so a function of NumPy that is called
with such an array runs at its place in each call. What it returns are arrays of tensors again:

    n = t.numpy()
    s = n.sum(axis=0)                (t1,) = run_opaque(numpy.ndarray.sum, (t,))
    return torch.from_numpy(s[1:])   t2 = narrow(t1, 0, 1, 2)

A function that returns a view of its argument becomes a view of the tensor. One that writes to an array which
such a call has made, and of which there are no views, gives the array another tensor:

    s *= 2                           (t2,) = run_opaque(operator.imul, (t1,))    # on a copy of t1

Which it is, and the layout of the view, is found by a trial on arrays with the layouts of the arguments. What
writes to other arrays, or returns something else than some numbers and arrays of them, takes the elements:
they are a decision.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, Final

import torch

from thunder.base.pytree import tree_flatten, tree_map, tree_unflatten
from thunder.frontend.arrays.array_arguments import array_view
from thunder.frontend.arrays.array_calls import TEXTS, is_array_function
from thunder.frontend.arrays.array_memory import copied, is_array, is_plain_array, overlap
from thunder.frontend.arrays.numpy_settings import settings_of_region
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.natives.libraries import is_numpy_scalar, numpy
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.opaque_calls import opaque_acquisition
from thunder.frontend.opaque_calls.native_functions import as_tensor, with_arrays
from thunder.frontend.opaque_calls.unmodelled_operands import asks
from thunder.frontend.session import TracingSession
from thunder.frontend.traced_replacements import full_name
from thunder.ir.proxies import NumberProxy, TensorProxy

__all__ = ["NOT_TAKEN", "call"]

#: the result of :func:`call` for a call that it does not make
NOT_TAKEN: Final = object()
#: the result of a trial
_WRITES: Final = object()

#: operators whose first argument is the array
_ON_ARRAYS: Final = {"getitem", "setitem", "delitem", "contains"} | {
    name for name in operator.__all__ if name.startswith("i") and hasattr(operator, f"__{name[1:]}__")
}
#: functions of the layout alone
_OF_LAYOUT: Final = frozenset(
    ("len", "shape", "ndim", "size", "zeros_like", "ones_like", "empty_like", "result_type", "iscomplexobj")
)
#: the most numbers among the results of a call: each is a decision
_MOST_NUMBERS: Final = 16


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of NumPy, or an operator of Python, on arrays of tensors that the program has not read.

    Returns NOT_TAKEN for other functions and arguments, and where the elements have to be known.
    """
    if not session.objects.unread:
        return NOT_TAKEN
    owner = getattr(fn, "__self__", None)
    if is_array(owner):
        fn, args = getattr(type(owner), fn.__name__), (owner, *args)
    name = getattr(fn, "__name__", "")
    if fn is iter and _is_unread(session, args[0]) and args[0].ndim > 1:
        return iter([session.call(operator.getitem, (args[0], i), {}) for i in range(len(args[0]))])
    if name in TEXTS or not _computes(fn, args):
        return NOT_TAKEN
    session.read_lists(*args, *kwargs.values())
    leaves, spec = tree_flatten((args, kwargs))
    if not any(_is_unread(session, x) for x in leaves) or not all(map(_is_known, leaves)):
        return NOT_TAKEN
    if name in _OF_LAYOUT:
        return fn(*args, **kwargs)
    leaves = [_decided(session, x) for x in leaves]
    passed = [_read_only(x) for x in leaves]
    tried = _tried(fn, passed, spec)
    if tried is _WRITES:
        return _writing(session, fn, leaves, spec, kwargs.get("out", args[0]))
    for x, own in zip(leaves, passed, strict=True):
        if is_array(tried) and _is_unread(session, x) and overlap(tried, x):
            return x if tried is own else _view(session, x, tried)
    if not (_is_usable(tried, passed) and session.may_run_unseen()):
        return NOT_TAKEN
    return with_arrays(session, _run(session, fn, leaves, spec), is_private=True)


def _writing(session: TracingSession, fn: Any, leaves: list[Any], spec: Any, target: Any) -> Any:
    """Call a function that writes to an array which is in memory of its own; NOT_TAKEN for another one."""
    traced = session.state(Arrays).of(target) if is_array(target) else None
    if traced is None or not (traced.is_unread and traced.is_private and session.may_run_unseen()):
        return NOT_TAKEN
    places = [i for i, x in enumerate(leaves) if x is target]
    own = copied(target)
    tried = _tried(fn, [own if x is target else _read_only(x) for x in leaves], spec)
    if not (tried is None or tried is own):
        return NOT_TAKEN
    traced.tensor = _run(session, fn, leaves, spec, written=places)
    return target if tried is own else None


def _computes(fn: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a function computes with the elements of arrays: one of NumPy, or an operator on one."""
    if not asks(fn):
        return is_array_function(fn)
    if fn.__name__ in _ON_ARRAYS:
        return is_array(args[0])
    return not any(isinstance(x, tuple | list | dict) for x in args)


def _is_unread(session: TracingSession, x: Any) -> bool:
    traced = session.state(Arrays).of(x) if is_array(x) else None
    return traced is not None and traced.is_unread


def _is_known(x: Any) -> bool:
    """Return whether an argument is an array or number, or says how to compute: a dtype, an index."""
    if type(x) is slice:
        return all(type(part) in LEAVES for part in (x.start, x.stop, x.step))
    module: Any = numpy()
    if isinstance(x, type):
        return issubclass(x, module.generic) or x in (bool, int, float, complex)
    is_number = type(x) in LEAVES or is_numpy_scalar(x) or isinstance(x, NumberProxy)
    return is_number or is_plain_array(x) or isinstance(x, module.dtype)


def _decided(session: TracingSession, x: Any) -> Any:
    """Return the value of a number of the trace, which is a decision; another value as it is."""
    if isinstance(x, NumberProxy) and session.speculation is not None:
        return session.speculation.decide("value", (x,))
    return x


def _read_only(x: Any) -> Any:
    """Return a view of an array that nobody can write to, and another value as it is."""
    if is_array(x):
        x = x.view()
        x.flags.writeable = False
    return x


def _tried(fn: Callable[..., Any], passed: Sequence[Any], spec: Any) -> Any:
    """Return what a function returns for arrays, _WRITES if it would write to one; None if it raises."""
    module: Any = numpy()
    args, kwargs = tree_unflatten(passed, spec)
    with module.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return fn(*args, **kwargs)
        except Exception as error:  # of these elements; those of a call may be others
            return _WRITES if "read-only" in str(error) else None


def _view(session: TracingSession, array: Any, view: Any) -> Any:
    """Return the array of a view of the tensor of an array, or NOT_TAKEN where torch has no such view."""
    traced = session.state(Arrays).of(array)
    if traced is None or view.dtype != array.dtype or any(stride < 0 for stride in view.strides):
        return NOT_TAKEN
    return array_view(session, traced, view)


def _is_usable(result: Any, passed: Sequence[Any]) -> bool:
    """Return whether a result is new, and consists of arrays that torch has and of some numbers."""
    leaves = tree_flatten(result)[0]
    arrays = [x for x in leaves if is_array(x)]
    numbers = [x for x in leaves if not is_array(x)]
    if len(numbers) > _MOST_NUMBERS or not all(map(_is_number, numbers)):
        return False
    shares = any(overlap(x, other) for x in arrays for other in passed if is_array(other))
    return not shares and all(map(_has_dtype_of_torch, arrays))


def _is_number(x: Any) -> bool:
    return (
        x is None
        or type(x) in (bool, int, float, complex)
        or (is_numpy_scalar(x) and x.dtype.kind in "biufc")
    )


def _has_dtype_of_torch(array: Any) -> bool:
    try:
        torch.from_numpy(numpy().empty(0, array.dtype))  # type: ignore[union-attr]
    except TypeError:
        return False
    return True


def _operand(session: TracingSession, x: Any) -> Any:
    """Return the tensor of an array that is not read, a copy of one that is, and other values as they are."""
    if not is_array(x):
        return x
    arrays = session.state(Arrays)
    arrays.check_read(x)
    traced = arrays.of(x)
    if traced is None or traced.content is not None:
        return copied(x)
    tensor = arrays.proxy_of(x)
    return session.call(torch.from_numpy, (x,), {}) if tensor is None else tensor


def _run(
    session: TracingSession, fn: Any, leaves: Sequence[Any], spec: Any, *, written: Sequence[int] = ()
) -> Any:
    """Record a call with flat arguments; return its result, or the argument at the places that is written."""
    operands = [_operand(session, x) for x in leaves]
    places = [i for i, x in enumerate(operands) if isinstance(x, TensorProxy)]
    fixed = [None if i in places else x for i, x in enumerate(operands)]
    settings = settings_of_region(session)

    def run(*tensors: Any) -> Any:
        module: Any = numpy()
        passed = list(fixed)
        for i, tensor in zip(places, tensors, strict=True):
            passed[i] = tensor.detach().numpy()
        own = copied(passed[written[0]]) if written else None
        passed = [own if i in written else _read_only(x) for i, x in enumerate(passed)]
        args, kwargs = tree_unflatten(passed, spec)
        with nullcontext() if settings is None else module.errstate(**settings):
            result = fn(*args, **kwargs)
        return torch.from_numpy(own) if written else tree_map(_as_new_tensor, result)

    run.__module__, run.__qualname__ = full_name(fn).rpartition(".")[::2]
    tensors = tuple(operands[i] for i in places)
    return opaque_acquisition.call(session, run, tensors, {}, is_pure=True)


def _as_new_tensor(x: Any) -> Any:
    """Return a result as a tensor or number; an array without elements may be a view of an argument."""
    return as_tensor(copied(x) if is_array(x) and x.size == 0 else x)
