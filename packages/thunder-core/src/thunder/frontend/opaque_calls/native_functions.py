"""Functions in C of other packages, called with tensors or arrays: opaque calls, see Note [Opaque calls].

    i, j = linear_sum_assignment(cost.numpy())   →   (t1, t2) = run_opaque(linear_sum_assignment, (cost,))

An array of a tensor is passed as the tensor, and is an array again when the function runs. Arrays among the
results are tensors of the program, of which it has arrays.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.pytree import tree_flatten, tree_map, tree_unflatten
from thunder.frontend.arrays.array_memory import copied, is_array, is_plain_array
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.natives.libraries import is_numpy_scalar, numpy
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.opaque_calls import opaque_acquisition
from thunder.frontend.session import TracingSession
from thunder.frontend.traced_replacements import full_name
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.refused_methods import decided_values

__all__ = ["call", "is_of_package"]

#: types of functions in C: Python's own, and those of Cython
_FUNCTIONS = frozenset({"builtin_function_or_method", "cython_function_or_method", "fused_cython_function"})
#: packages with rules of their own
_MODELLED = frozenset({"torch", "thunder", "numpy", "tqdm"})
_ARRAY, _NUMBER = "array of NumPy", "number of NumPy"


def is_of_package(fn: Any) -> bool:
    """Return whether a callable is a function in C of a module that is neither Python's nor torch's."""
    if type(fn).__name__ not in _FUNCTIONS:
        return False
    owner, module = getattr(fn, "__self__", None), getattr(fn, "__module__", None)
    if type(module) is not str or not (owner is None or isinstance(owner, types.ModuleType)):
        return False
    package = module.partition(".")[0]
    return package not in sys.stdlib_module_names and package not in _MODELLED


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function in C: as an opaque callable if it is passed tensors or arrays, and nothing unknown."""
    leaves, spec = tree_flatten((args, kwargs))
    if not any(isinstance(x, TensorProxy) or is_array(x) for x in leaves) or not all(map(_is_known, leaves)):
        return session.machine.generic_call(fn, args, kwargs)
    values = [_tensor_of(session, x) for x in leaves]
    arrays = [i for i, (x, value) in enumerate(zip(leaves, values, strict=True)) if x is not value]
    run = _runner(fn, arrays, spec)
    result, written = opaque_acquisition.call(session, run, tuple(values), {})
    for index, tensor in written.items():
        leaves[index][...] = numpy().array(decided_values(tensor))  # type: ignore[union-attr]
    return _with_arrays(session, result)


def _is_known(x: Any) -> bool:
    is_leaf = type(x) in LEAVES or is_numpy_scalar(x) or isinstance(x, TensorProxy | NumberProxy)
    return is_leaf or is_plain_array(x)


def _tensor_of(session: TracingSession, x: Any) -> Any:
    """Return the tensor of an array whose elements are not known, and other values as they are."""
    if isinstance(x, NumberProxy) and session.speculation is not None:
        return session.speculation.decide("value", (x,))
    traced = session.state(Arrays).of(x) if is_array(x) else None
    if traced is None:
        return x
    tensor = session.state(Arrays).proxy_of(x)
    return session.call(torch.from_numpy, (x,), {}) if tensor is None else tensor


def _runner(fn: Any, arrays: Sequence[int], spec: Any) -> Callable[..., Any]:
    """Return a function of flat arguments that calls ``fn``, with arrays in the place of some tensors.

    It returns the result, and the arrays to which ``fn`` has written, as tensors by their index.
    """

    def run(*leaves: Any) -> Any:
        passed = [x.detach().numpy() if i in arrays else x for i, x in enumerate(leaves)]
        passed = [copied(x) if is_array(x) else x for x in passed]
        before = {i: x.tobytes() for i, x in enumerate(passed) if is_array(x)}
        args, kwargs = tree_unflatten(passed, spec)
        result = fn(*args, **kwargs)
        written = {i: passed[i] for i, content in before.items() if passed[i].tobytes() != content}
        if not written.keys().isdisjoint(arrays) or _has_other_leaves((args, kwargs), passed):
            raise UnsupportedProgram(
                f"{full_name(fn)} is implemented in C, and writes to an argument that a tensor, a list or a "
                "dict holds",
                hint="Pass a copy, and return the result from a function marked by thunder.opaque.",
            )
        return tree_map(_as_tensor, result), {i: torch.from_numpy(array) for i, array in written.items()}

    run.__module__, run.__qualname__ = full_name(fn).rpartition(".")[::2]
    return run


def _has_other_leaves(tree: Any, leaves: Sequence[Any]) -> bool:
    now = tree_flatten(tree)[0]
    return len(now) != len(leaves) or any(a is not b for a, b in zip(now, leaves, strict=True))


def _as_tensor(x: Any) -> Any:
    """Return an array among the results as a tensor, and a number of NumPy as its type and value."""
    if is_numpy_scalar(x):
        return {_NUMBER: (x.dtype.str, x.item())}
    if not is_array(x):
        return x
    if not x.flags.writeable:
        raise UnsupportedProgram(
            "a function in C returns an array of NumPy that is read-only",
            hint="Mark the function around it by thunder.opaque.",
        )
    return {_ARRAY: torch.from_numpy(x)}


def _with_arrays(session: TracingSession, result: Any) -> Any:
    """Return the result of a run with arrays and numbers of NumPy as the function has returned them."""
    if type(result) is dict and result.keys() == {_ARRAY}:
        tensor = result[_ARRAY]
        return session.state(Arrays).of_tensor(tensor, tensor.strides)
    if type(result) is dict and result.keys() == {_NUMBER}:
        module: Any = numpy()
        dtype, value = result[_NUMBER]
        return module.dtype(dtype).type(value)
    if type(result) in (list, tuple):
        return type(result)(_with_arrays(session, part) for part in result)
    if type(result) is dict:
        return {key: _with_arrays(session, part) for key, part in result.items()}
    return result
