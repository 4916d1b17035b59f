"""Calls of NumPy's functions on arrays and numbers: they run natively, since they depend on these alone.

The content of arrays that they are called with is a fact, see Note [Arrays]. Functions that read or write
files, change NumPy's settings, call other functions or return memory addresses are refused.
"""

from __future__ import annotations

import functools
import operator
import types
from typing import Any, Final

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.arrays.array_arguments import array_attribute, array_of, with_tensor_index
from thunder.frontend.arrays.array_memory import is_array, is_plain_array
from thunder.frontend.arrays.numpy_settings import note_print_options
from thunder.frontend.arrays.traced_arrays import Arrays
from thunder.frontend.natives.libraries import is_numpy_function, is_numpy_scalar, is_ufunc, numpy
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import NumberProxy, TensorProxy

__all__ = ["TEXTS", "before_call", "call", "is_array_function", "load_attr", "store_attr"]

#: functions of NumPy that depend on more than their arguments, or call their arguments
_OTHERS: Final = frozenset(
    (
        *("load", "save", "savez", "savez_compressed", "savetxt", "loadtxt", "genfromtxt", "fromfile"),
        *("fromregex", "fromiter", "frompyfunc", "fromfunction", "frombuffer", "from_dlpack", "vectorize"),
        *("set_printoptions", "get_printoptions", "printoptions", "seterr", "geterr", "seterrcall"),
        *("geterrcall", "errstate", "setbufsize", "getbufsize", "show_config", "show_runtime", "info"),
        *("test", "get_include", "apply_along_axis"),
        *("apply_over_axes", "piecewise", "nditer", "nested_iters", "shares_memory", "may_share_memory"),
        *("format_float_positional", "format_float_scientific", "broadcast", "bmat", "asmatrix"),
    )
)
#: methods of arrays that write files, return addresses or change how memory is shown
_REFUSED_METHODS: Final = frozenset(
    ("dump", "dumps", "tofile", "setflags", "resize", "__reduce__", "__reduce_ex__", "__setstate__")
)
_METADATA: Final = frozenset(("shape", "ndim", "size", "dtype", "itemsize", "nbytes", "strides", "flags"))
_ADDRESSES: Final = frozenset(
    ("base", "ctypes", "data", "__array_interface__", "__array_struct__", "__dlpack__")
)
#: functions that make texts of arrays, by settings of NumPy
TEXTS: Final = frozenset(
    (
        *("str", "repr", "ascii", "format", "__str__", "__repr__", "__format__"),
        *("array2string", "array_repr", "array_str"),
    )
)
#: functions that make arrays of tensors as of arrays
_CONVERTING: Final = (
    *("array", "asarray", "asanyarray", "ascontiguousarray", "stack", "concatenate"),
    *("vstack", "hstack"),
)


@functools.cache
def _functions(module: Any) -> dict[int, Any]:
    """Return the functions of NumPy that depend on their arguments alone, by id."""
    spaces = (module, module.linalg, module.fft)
    functions = (types.BuiltinFunctionType, types.FunctionType)
    return {
        id(fn): fn
        for space in spaces
        for name, fn in list(vars(space).items())  # modules of NumPy are imported when they are asked for
        if name not in _OTHERS
        and not name.startswith("_")
        and (is_numpy_function(fn) or isinstance(fn, functions))
    } | {id(cls): cls for cls in (module.dtype, module.finfo, module.iinfo)}


def is_array_function(fn: Any) -> bool:
    """Return whether a callable is a function of NumPy, or a method of its objects, that may run natively."""
    module = numpy()
    if module is None:
        return False
    if id(fn) in _functions(module) or is_ufunc(fn):
        return True
    if isinstance(fn, type):
        return issubclass(fn, module.generic) and fn.__module__ == "numpy"
    owner = getattr(fn, "__self__", None)
    cls = getattr(fn, "__objclass__", type(owner))
    name = getattr(fn, "__name__", "")
    if isinstance(cls, type) and issubclass(cls, (module.ndarray, module.generic, module.flatiter)):
        return name not in _REFUSED_METHODS
    return is_ufunc(owner) or (isinstance(owner, module.dtype) and name == "newbyteorder")


def call(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of NumPy on arrays and numbers.

    Raises UnsupportedProgram for arguments or results of other types.
    """
    session.uses_arrays = True
    module: Any = numpy()
    if any(fn is getattr(module, name) for name in _CONVERTING):
        args = tuple(_with_arrays(session, a) for a in args)
    args = tuple(_with_values(a) for a in args)
    kwargs = {name: _with_values(a) for name, a in kwargs.items()}
    owner = getattr(fn, "__self__", None)
    strange = next((x for x in (owner, *args, *kwargs.values()) if not _is_plain(x)), None)
    if strange is not None:
        raise _refusal(fn, f"is called with {_described(strange)}")
    for array in _arrays((owner, args, tuple(kwargs.values()))):
        session.state(Arrays).check_read(array)
    result = fn(*args, **kwargs)
    if not _is_plain(result):
        raise _refusal(fn, f"returns {_described(result)}")
    return result


def _refusal(fn: Any, what: str) -> UnsupportedProgram:
    module = getattr(fn, "__module__", None) or "numpy"
    return UnsupportedProgram(
        f"{module}.{getattr(fn, '__name__', fn)} {what}",
        hint="Inside a compiled function, NumPy computes with numbers and arrays of them. Compute with "
        "torch, or mark the function around it by thunder.opaque.",
    )


def _described(x: Any) -> str:
    return f"an array of {x.dtype}" if is_array(x) else f"an object of type {type(x).__qualname__}"


def _with_values(x: Any) -> Any:
    """Return an argument with the values of numbers of the trace, which are decisions."""
    if isinstance(x, NumberProxy):
        return x.fixed("a call of NumPy")
    if type(x) in (tuple, list):
        values = [_with_values(v) for v in x]
        if any(a is not b for a, b in zip(x, values, strict=True)):
            return type(x)(values)
    return x


def _with_arrays(session: TracingSession, x: Any) -> Any:
    if isinstance(x, TensorProxy):
        array = array_of(session, x)
        traced = session.state(Arrays).of(array)
        if traced is not None:
            session.state(Arrays).read(traced)
        return array
    if type(x) in (tuple, list) and any(isinstance(v, TensorProxy) for v in x):
        return type(x)([_with_arrays(session, v) for v in x])
    return x


def _is_plain(x: Any) -> bool:
    cls = type(x)
    if cls in LEAVES or is_numpy_scalar(x) or is_plain_array(x):
        return True
    if cls in (tuple, list) or (isinstance(x, tuple) and cls.__module__.startswith("numpy")):
        return all(map(_is_plain, x))
    if cls is dict:
        return all(map(_is_plain, x.values()))
    module: Any = numpy()
    if isinstance(x, type):
        return issubclass(x, module.generic) or x in (int, float, bool, complex, str)
    others = (module.dtype, module.finfo, module.iinfo, module.ufunc, module.flatiter, module._CopyMode)
    return isinstance(x, (types.ModuleType, *others))


def _arrays(values: Any) -> list[Any]:
    if is_array(values):
        return [values]
    if isinstance(values, tuple | list):
        return [a for v in values for a in _arrays(v)]
    return []


# -- operators of Python -------------------------------------------------------------------------------------


def before_call(session: TracingSession, fn: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return the arguments of native code: an index of a tensor without arrays.

    Raises UnsupportedProgram for arithmetic of a tensor with an array, which leaves torch.
    """
    if not any(map(is_array, args)) and fn is not operator.getitem and fn is not operator.setitem:
        return args
    for array in _arrays(args):
        session.state(Arrays).check_read(array)
    if fn is operator.setitem and _is_of_numpy(args[0]):
        read(session, args[1:])
    if getattr(fn, "__name__", "") in TEXTS:
        note_print_options(session)
    if not args or not any(isinstance(a, TensorProxy) for a in args):
        return args
    if fn in (operator.getitem, operator.setitem) and isinstance(args[0], TensorProxy):
        return (args[0], with_tensor_index(session, args[1]), *args[2:])
    name = getattr(fn, "__name__", "")
    if getattr(operator, name, None) is fn and any(map(is_array, args)):
        raise UnsupportedProgram(
            f"operator.{name} of a tensor and an array of NumPy, which NumPy computes",
            hint="Use torch.from_numpy(array).",
        )
    return args


def read(session: TracingSession, values: Any) -> None:
    """Read the arrays among values, and in tuples and lists of them: NumPy copies their elements."""
    arrays = session.state(Arrays)
    for array in _arrays(values):
        traced = arrays.of(array)
        if traced is not None:
            arrays.read(traced)


def _is_of_numpy(x: Any) -> bool:
    module = numpy()
    return is_array(x) or (module is not None and isinstance(x, module.flatiter))


def store_attr(session: TracingSession, array: Any, name: str, value: Any) -> None:
    """Set ``array.name``: elements (``real``, ``flat``), or metadata."""
    read(session, [array, value])
    session.store_plain(array, name, value)


def load_attr(session: TracingSession, array: Any, name: str) -> Any:
    """Return ``array.name``: metadata, a view or a method."""
    if not session.uses_arrays:
        return session.load_plain(array, name)
    arrays = session.state(Arrays)
    traced = arrays.of(array)
    if traced is not None:
        if name in _METADATA:
            arrays.note_layout(traced)
        elif traced.is_unread and (view := array_attribute(session, traced, name)) is not None:
            return view
        elif name in ("T", "mT", "real", "imag", "flat"):
            arrays.read(traced)
    if name in _ADDRESSES:
        raise UnsupportedProgram(
            f"the program reads the attribute {name!r} of an array of NumPy",
            hint="Read it outside the compiled function.",
        )
    return session.machine.generic_load_attr(array, name)
