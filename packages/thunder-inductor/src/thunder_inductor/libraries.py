"""Shared libraries of several kernels in C++: their source, and how they are loaded.

The compiler reads TorchInductor's header for a second and a half, and then needs a tenth of a second for a
kernel; so kernels are compiled together. A library is a module of Python with a function for each kernel:

    kernel0(tensor, …)     runs a kernel on the data of tensors
    bind(address)          is called first, with the address of torch's function for the data of a tensor
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Mapping, Sequence
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import torch

from .wrapper_code import Kernel

__all__ = ["SUFFIX", "kernel_name", "key_of_source", "load_library", "source_of"]

SUFFIX: Final = ".so"

_START = """#include <torch/csrc/inductor/cpp_prefix.h>
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <exception>

static void* (*data_of)(PyObject*) = nullptr;

static PyObject* bind(PyObject*, PyObject* address) {
    void* function = PyLong_AsVoidPtr(address);
    if (function == nullptr) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_ValueError, "the address is 0");
        return nullptr;
    }
    data_of = reinterpret_cast<void* (*)(PyObject*)>(function);
    Py_RETURN_NONE;
}

static PyCFunction function(PyObject* (*kernel)(PyObject*, PyObject* const*, Py_ssize_t)) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(kernel));
}

template <typename F>
static PyObject* run(Py_ssize_t found, Py_ssize_t expected, const F& kernel) {
    if (found != expected) {
        PyErr_Format(PyExc_TypeError, "the kernel has %zd tensors and got %zd", expected, found);
        return nullptr;
    }
    try {
        kernel();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
        return nullptr;
    }
    Py_RETURN_NONE;
}
"""

_KERNEL = """
namespace region{number} {{
{definition}
}}
static PyObject* kernel{number}(PyObject*, PyObject* const* tensors, Py_ssize_t count) {{
    return run(count, {count}, [&] {{ region{number}::kernel({arguments}); }});
}}
"""

_END = """
static PyMethodDef methods[] = {{
    {{"bind", bind, METH_O, ""}},
{methods}
    {{nullptr, nullptr, 0, nullptr}}}};
static PyModuleDef module = {{
    PyModuleDef_HEAD_INIT, "kernels", "", 0, methods, nullptr, nullptr, nullptr, nullptr}};
PyMODINIT_FUNC PyInit_kernels(void) {{ return PyModuleDef_Init(&module); }}
"""

_METHOD = '    {{"kernel{number}", function(kernel{number}), METH_FASTCALL, ""}},'


def kernel_name(number: int) -> str:
    """Return the name of the function of a kernel in its library."""
    return f"kernel{number}"


def source_of(kernels: Sequence[Kernel]) -> str:
    """Return the C++ source of a library of kernels, which are numbered from 0."""
    parts = [_START]
    for number, kernel in enumerate(kernels):
        arguments = ", ".join(
            f"static_cast<{type}>(data_of(tensors[{i}]))" for i, type in enumerate(kernel.types)
        )
        parts.append(
            _KERNEL.format(
                number=number, definition=kernel.definition, count=len(kernel.types), arguments=arguments
            )
        )
    methods = "\n".join(_METHOD.format(number=number) for number in range(len(kernels)))
    return "".join([*parts, _END.format(methods=methods)])


def key_of_source(source: str) -> str:
    """Return the key under which the library of a source is kept."""
    return f"library {hashlib.sha256(source.encode()).hexdigest()}"


def load_library(content: bytes) -> Mapping[str, Callable[..., None]]:
    """Return the functions of the kernels of a library by name. Raises ImportError if it does not load.

    The file exists only while it is loaded, so that nothing can change it afterwards.
    """
    with tempfile.TemporaryDirectory(prefix="thunder-inductor-") as folder:
        path = Path(folder, f"kernels{SUFFIX}")
        path.write_bytes(content)
        module = _import(path)
    guards: Any = torch._C._dynamo.guards
    module.bind(guards._torchinductor_pyobject_tensor_data_ptr)
    return {name: value for name, value in vars(module).items() if name.startswith("kernel")}


def _import(path: Path) -> ModuleType:
    loader = ExtensionFileLoader("kernels", str(path))
    spec = spec_from_loader("kernels", loader)
    assert spec is not None, "a loader without a module"
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module
