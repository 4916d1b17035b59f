"""Functions in C of other packages, called with tensors or arrays: opaque calls, see Note [Opaque calls].

    i, j = linear_sum_assignment(cost.numpy())   →   (t1, t2) = run_opaque(linear_sum_assignment, (cost,))

An array of a tensor is passed as the tensor, and is an array again when the function runs. Arrays among the
results are tensors of the program, of which it has arrays.
"""

from __future__ import annotations

import enum
import functools
import sys
import types
from collections.abc import Callable, Sequence
from importlib.machinery import ExtensionFileLoader
from typing import Any, Final

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, lookup_type
from thunder.base.pytree import tree_flatten, tree_map, tree_unflatten
from thunder.frontend.arrays.array_memory import copied, is_array, is_plain_array
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.natives.libraries import is_numpy_scalar, numpy
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.opaque_calls import opaque_acquisition
from thunder.frontend.opaque_calls.opaque_run import VALUES, MadeObject, ThisResult
from thunder.frontend.opaque_calls.unmodelled_operands import asks
from thunder.frontend.session import TracingSession
from thunder.frontend.traced_replacements import full_name
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.refused_methods import decided_values
from thunder.ir.unmodelled_proxies import UnmodelledObject

__all__ = ["as_tensor", "call", "is_of_package", "load_attr", "store_attr", "takes", "with_arrays"]

#: types of functions in C: Python's own, and those of Cython
_FUNCTIONS = frozenset(
    {"builtin_function_or_method", "cython_function_or_method", "fused_cython_function", "fortran"}
)
#: types of callables of packages that may have modules in C
_PYTHON = (types.FunctionType, type)
#: classes of which thunder follows the objects
_FOLLOWED = (torch.nn.Module, torch.Tensor, BaseException, enum.Enum, tuple, dict, list)
#: packages with rules of their own
_MODELLED = frozenset({"torch", "thunder", "numpy", "pydantic", "pydantic_core"})
_IDENTITIES = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
_ARRAY, _NUMBER = "array of NumPy", "number of NumPy"


def is_of_package(fn: Any) -> bool:
    """Return whether a callable is a function in C of a module that is neither Python's nor torch's."""
    if type(fn).__name__ not in _FUNCTIONS:
        return False
    owner = getattr(fn, "__self__", None)
    if not (owner is None or isinstance(owner, types.ModuleType) or type(owner).__name__ == "PyCapsule"):
        return False
    return type(fn).__name__ == "fortran" or _package_of(fn) not in (None, *_MODELLED)


def _package_of(x: Any) -> str | None:
    """Return the package of a function or class; None for Python's own."""
    module = getattr(x, "__module__", None)
    package = module.partition(".")[0] if type(module) is str else ""
    return package if package and package not in sys.stdlib_module_names else None


@functools.cache
def _is_numeric(package: str | None) -> bool:
    """Return whether a package has modules in C, and is not one that thunder follows."""
    if package is None or package in _MODELLED:
        return False
    modules = [m for name, m in list(sys.modules.items()) if name.startswith(f"{package}.")]
    loaders = (getattr(getattr(m, "__spec__", None), "loader", None) for m in modules)
    return any(isinstance(loader, ExtensionFileLoader) for loader in loaders)


@functools.cache
def _uses_torch(package: str) -> bool:
    """Return whether a module of a package has imported torch."""
    modules = [m for name, m in list(sys.modules.items()) if f"{name}.".startswith(f"{package}.")]
    return any(isinstance(m, types.ModuleType) and vars(m).get("torch") is torch for m in modules)


def takes(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether a function or class of a package runs as it is, on arrays of tensors or its own objects.

    A class of a package that has modules in C, and that knows nothing of torch, is called so with any
    numbers and strings: its objects will take arrays.
    """
    if type(fn) is UnmodelledObject or _is_of_numeric(fn):
        session.read_lists(*args, *kwargs.values())
    leaves = tree_flatten((args, kwargs))[0]
    if any(type(x) is UnmodelledObject for x in leaves) or type(fn) is UnmodelledObject:
        is_native = is_of_package(fn) or getattr(fn, "__objclass__", object) not in (object, type)
        if not (
            type(fn) is UnmodelledObject
            or is_native
            or asks(fn)
            or _package_of(fn) in ("numpy", "torch")
            or _is_of_numeric(fn)
        ):
            return False
    elif not (any(map(is_array, leaves)) or _makes_objects(fn)) or not _is_of_numeric(fn):
        return False
    return all(map(_is_known, leaves)) and session.may_run_unseen()


def _makes_objects(fn: Any) -> bool:
    """Return whether ``fn`` is a class of a package that knows nothing of torch."""
    makes = isinstance(fn, type) and not issubclass(fn, _FOLLOWED) and bool(fn.__module__)
    return makes and not _uses_torch(str(_package_of(fn)))


def _is_of_numeric(fn: Any) -> bool:
    return isinstance(fn, _PYTHON) and _is_numeric(_package_of(fn))


def load_attr(session: TracingSession, x: UnmodelledObject, name: str) -> Any:
    """Return an attribute of an object of a package: a method bound to the proxy, or what it holds now."""
    if name == "__class__":
        return x.seen_class
    raw = lookup_type(x.seen_class, name)
    if raw is not ABSENT and not isinstance(raw, property) and not hasattr(type(raw), "__set__"):
        if isinstance(raw, staticmethod | classmethod):
            return raw.__get__(None, x.seen_class)
        if callable(raw):
            return types.MethodType(raw, x)
    value = call(session, _reader(name), (x,), {})
    if type(value) is tuple and value == (_ABSENT,):
        raise AttributeError(f"{x.seen_class.__name__!r} object has no attribute {name!r}")
    return value


_ABSENT: Final = "there is no such attribute"


@functools.cache
def _reader(name: str) -> Callable[[Any], Any]:
    def read(x: Any) -> Any:
        return getattr(x, name, (_ABSENT,))

    read.__module__, read.__qualname__ = "getattr", name
    return read


def store_attr(session: TracingSession, x: UnmodelledObject, name: str, value: Any) -> None:
    """Write an attribute of an object of a package."""
    call(session, setattr, (x, name, value), {})


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function in C: as an opaque callable if it is passed tensors or arrays, and nothing unknown."""
    if type(fn) is UnmodelledObject:
        fn, args = _called, (fn, *args)
    leaves, spec = tree_flatten((args, kwargs))
    takes_data = any(isinstance(x, TensorProxy | UnmodelledObject) or is_array(x) for x in leaves)
    may_run = takes_data or session.may_run_unseen()
    if not (may_run and all(map(_is_known, leaves))):
        return session.machine.generic_call(fn, args, kwargs)
    values = [_tensor_of(session, x) for x in leaves]
    arrays = [i for i, (x, value) in enumerate(zip(leaves, values, strict=True)) if x is not value]
    run = _runner(fn, arrays, spec)
    result, written = opaque_acquisition.call(session, run, tuple(values), {})
    for index, tensor in written.items():
        leaves[index][...] = numpy().array(decided_values(tensor))  # type: ignore[union-attr]
    return with_arrays(session, result)


def _called(x: Any, *args: Any, **kwargs: Any) -> Any:
    return x(*args, **kwargs)


def _is_known(x: Any) -> bool:
    is_leaf = (
        type(x) in LEAVES or is_numpy_scalar(x) or isinstance(x, TensorProxy | NumberProxy | UnmodelledObject)
    )
    return is_leaf or is_plain_array(x)


def _tensor_of(session: TracingSession, x: Any) -> Any:
    """Return the tensor of an array whose elements are not known, and other values as they are."""
    if isinstance(x, NumberProxy):
        return x.fixed("a function of a package")
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
        return tree_map(as_tensor, result), {i: torch.from_numpy(array) for i, array in written.items()}

    run.__module__, run.__qualname__ = full_name(fn).rpartition(".")[::2]
    return run


def _has_other_leaves(tree: Any, leaves: Sequence[Any]) -> bool:
    now = tree_flatten(tree)[0]
    return len(now) != len(leaves) or any(a is not b for a, b in zip(now, leaves, strict=True))


def as_tensor(x: Any) -> Any:
    """Return an array among the results as a tensor, and a number of NumPy as its type and value."""
    if is_numpy_scalar(x):
        return {_NUMBER: (x.dtype.str, x.item())}
    if not is_array(x) or x.dtype.kind not in "biufc":
        is_value = isinstance(x, torch.Tensor) or type(x) in VALUES
        return x if is_value else ThisResult(x) if isinstance(x, _IDENTITIES) else MadeObject(x)
    if not x.flags.writeable:
        raise UnsupportedProgram(
            "a function in C returns an array of NumPy that is read-only",
            hint="Mark the function around it by thunder.opaque.",
        )
    return {_ARRAY: torch.from_numpy(x)}


def with_arrays(session: TracingSession, result: Any, *, is_private: bool = False) -> Any:
    """Return the result of a run with arrays and numbers of NumPy as the function has returned them.

    ``is_private``: nobody else has the memory of the arrays.
    """
    if type(result) is dict and result.keys() == {_ARRAY}:
        tensor = result[_ARRAY]
        return session.state(Arrays).of_tensor(tensor, tensor.strides, is_private=is_private)
    if type(result) is dict and result.keys() == {_NUMBER}:
        module: Any = numpy()
        dtype, value = result[_NUMBER]
        return module.dtype(dtype).type(value)
    if isinstance(result, tuple) and hasattr(result, "_make"):
        return result._make(with_arrays(session, part, is_private=is_private) for part in result)
    if type(result) in (list, tuple):
        return type(result)(with_arrays(session, part, is_private=is_private) for part in result)
    if type(result) is dict:
        return {key: with_arrays(session, part, is_private=is_private) for key, part in result.items()}
    return result
