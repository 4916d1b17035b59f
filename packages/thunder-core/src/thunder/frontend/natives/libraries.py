"""Library code by identity: that of thunder, torch, NumPy and the standard library.

Functions of a library are guarded as objects and not in their parts, and the variables of its modules are
constants; functions of thunder run natively. A name does not decide this, because a user's file may have the
name of a module of the standard library. A namespace belongs to a library if the import system created it
from a file in the library's directory, and if it is the namespace of the module in ``sys.modules``.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import types
from collections.abc import Iterator, Mapping
from typing import Any

#: folders of thunder whose functions run natively while a program is traced; those of ``polyfills`` are
#: interpreted
OWN_FOLDERS = frozenset(
    {
        "base",
        "interpreter",
        "ir",
        "ops",
        "torch",
        "executor_base",
        "plugins",
        "extend",
        "passes",
        "autograd",
        "wrappers",
        "frontend",
        "compiler",
        "executors",
        "core",
    }
)
_STANDARD = frozenset(sys.stdlib_module_names)
_THIRD_PARTY = frozenset({"torch", "thunder", "numpy"})
_STANDARD_DIRECTORIES = tuple(
    {os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")}
    | {os.path.realpath(os.path.dirname(os.__file__)) + os.sep}
)
_INSTALLED = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
#: origins of modules without a file, which are part of the Python executable
_IN_EXECUTABLE = frozenset({"built-in", "frozen"})

#: library namespaces by id, each with its module's name; held, so that the ids stay theirs
_known: dict[int, tuple[Mapping[str, Any], str]] = {}


def library_module(namespace: Mapping[str, Any]) -> str:
    """Return the name of the library module with this namespace, or "" if there is none."""
    entry = _known.get(id(namespace))
    if entry is not None:
        return entry[1]
    spec = namespace.get("__spec__")
    name = getattr(spec, "name", None) if spec is not None else namespace.get("__name__")
    if type(name) is not str or not _is_library_module(name, getattr(spec, "origin", None), namespace):
        return ""
    _known[id(namespace)] = namespace, name
    return name


def _is_library_module(name: str, origin: Any, namespace: Mapping[str, Any]) -> bool:
    package = name.partition(".")[0]
    if package not in _THIRD_PARTY and package not in _STANDARD:
        return False
    module = sys.modules.get(name)
    if type(module) is types.ModuleType and vars(module) is not namespace:
        return False  # a namespace with the name of another one; a module of a subclass may wrap its own
    if type(origin) is not str:
        return _is_made_by_extension(name, module)
    if package in _STANDARD:
        return origin in _IN_EXECUTABLE or _is_in_standard_directory(os.path.realpath(origin))
    return os.path.realpath(origin).startswith(tuple(_directories(package)))


def _is_made_by_extension(name: str, module: types.ModuleType | None) -> bool:
    """Return whether a module without a specification is a member of torch's extension module."""
    parent, _, member = name.rpartition(".")
    if module is None or not name.startswith("torch._C."):
        return False
    package = sys.modules.get(parent)
    return package is not None and is_library(vars(package)) and vars(package).get(member) is module


def _is_in_standard_directory(file: str) -> bool:
    return file.startswith(_STANDARD_DIRECTORIES) and not any(part in file for part in _INSTALLED)


def _directories(package: str) -> Iterator[str]:
    module = numpy() if package == "numpy" else sys.modules.get(package)
    for path in getattr(module, "__path__", ()):
        yield os.path.realpath(path) + os.sep


def is_library(namespace: Mapping[str, Any]) -> bool:
    """Return whether a namespace is that of a library's module."""
    return library_module(namespace) != ""


def is_library_module(module: types.ModuleType) -> bool:
    """Return whether a module is a library's, or an object in place of a library's module."""
    if is_library(vars(module)):
        return True
    methods = (v for cls in type(module).__mro__ for v in vars(cls).values())
    return any(isinstance(m, types.FunctionType) and is_library(m.__globals__) for m in methods)


def is_guarded_whole(namespace: Mapping[str, Any]) -> bool:
    """Return whether functions with this namespace are guarded without code and defaults.

    These are the functions of torch and of the standard library.
    """
    package = library_module(namespace).partition(".")[0]
    return package == "torch" or package in _STANDARD


def is_own(namespace: Mapping[str, Any]) -> bool:
    """Return whether functions with this namespace are thunder's, which run natively."""
    package, _, rest = library_module(namespace).partition(".")
    return package == "thunder" and rest.partition(".")[0] in OWN_FOLDERS


def is_library_class(cls: type) -> bool:
    """Return whether a class is what a library's module has under its qualified name."""
    module = sys.modules.get(cls.__module__)
    if module is None or not is_library(vars(module)):
        return False
    value: Any = vars(module)
    for name in cls.__qualname__.split("."):
        members = value if value is vars(module) else vars(value) if isinstance(value, type) else {}
        value = members.get(name)
    return value is cls


# -- pydantic, which may be absent ---------------------------------------------------------------------------


def is_of_pydantic(x: Any) -> bool:
    """Return whether ``x`` is a validator or serializer, or a class of arguments, of pydantic."""
    cls = x if isinstance(x, type) else type(x)
    names = ("ArgsKwargs",) if cls is x else ("SchemaValidator", "SchemaSerializer", "PydanticUndefinedType")
    return cls.__module__ == "pydantic_core._pydantic_core" and cls.__name__ in names


# -- NumPy, which may be absent ------------------------------------------------------------------------------


#: NumPy, once it has been seen
_numpy: types.ModuleType | None = None


def numpy() -> types.ModuleType | None:
    """Return NumPy if it is imported, or None.

    In a module that a user has called ``numpy``, classes come from class statements.
    """
    global _numpy
    module = sys.modules.get("numpy")
    if module is None or module is _numpy:
        return module
    if _is_static(getattr(module, "ufunc", None)) and _is_static(getattr(module, "generic", None)):
        _numpy = module
        return module
    return None


def _is_static(cls: Any) -> bool:
    return isinstance(cls, type) and not cls.__flags__ & _HEAPTYPE


_HEAPTYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE


def is_ufunc(x: Any) -> bool:
    """Return whether ``x`` is an elementwise function of NumPy's kind, of any library, without state.

    One of ``np.frompyfunc``, all of whose loops are of objects, calls a Python function.
    """
    module = numpy()
    return module is not None and type(x) is module.ufunc and any("O" not in loop for loop in x.types)


def is_numpy_function(x: Any) -> bool:
    """Return whether ``x`` is one of NumPy's functions or dtypes, of which only the identity matters."""
    module = numpy()
    if module is None:
        return False
    methods = type(vars(module.random.RandomState)["rand"])
    return type(x) in (module.ufunc, type(module.tensordot), methods) or isinstance(x, module.dtype)


#: functions of NumPy whose result depends on the numbers in their arguments alone
_OF_NUMBERS = (
    *("prod", "sum", "mean", "median", "std", "var", "max", "min", "amax", "amin", "all", "any"),
    *("argmax", "argmin", "round", "around"),
)


def is_number_function(x: Any) -> bool:
    """Return whether ``x`` is a type of NumPy's numbers, or a function that makes a number of numbers."""
    module = numpy()
    if module is None:
        return False
    if isinstance(x, type):
        return issubclass(x, module.number | module.bool_) and _is_static(x)
    return is_numpy_function(x) and any(x is getattr(module, name, None) for name in _OF_NUMBERS)


#: types of Python, of which most values are that programs read and call
_OF_PYTHON = frozenset(
    {
        *(type(None), bool, int, float, complex, str, bytes, tuple, list, dict, set, slice, type),
        *(types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType),
    }
)


def is_numpy_scalar(x: Any) -> bool:
    """Return whether ``x`` is a number of NumPy, which is immutable."""
    if type(x) in _OF_PYTHON:
        return False
    module = numpy()
    return module is not None and isinstance(x, module.generic)


def of_numpy_core(path: str) -> Any:
    """Return an object of a module of NumPy's core, or None where this version has none."""
    module, _, name = path.rpartition(".")
    return getattr(sys.modules.get(f"numpy._core.{module}"), name, None)


def is_settings(value: Any) -> bool:
    """Return whether a value is NumPy's object of settings of floating-point errors, which is immutable."""
    make = of_numpy_core("_multiarray_umath._make_extobj")
    return type(value).__name__ == "PyCapsule" and make is not None and type(value) is type(make())
