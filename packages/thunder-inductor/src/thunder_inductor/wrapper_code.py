"""The Python module that TorchInductor generates for a graph, taken apart.

The module has kernels in C++, and a function that allocates results and calls them:

    from torch._inductor.async_compile import AsyncCompile
    …
    cpp_fused_0 = async_compile.cpp_pybinding(['const float*', 'float*'], r'''…''')
    …
    class Runner:
        def call(self, args):
            arg0_1, = args
            args.clear()
            buf0 = empty_strided_cpu((4, ), (1, ), torch.float32)
            cpp_fused_0(arg0_1, buf0)
            return (buf0, )

Its imports take seconds, and its kernels are compiled one after the other while it is imported. If the
function uses nothing but the kernels and the names in `NAMES`, it runs without the module.
"""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

__all__ = ["EXTERN", "NAMES", "Kernel", "Wrapper", "function_of", "wrapper_of"]

#: functions of torch in C++, which its type information lacks
_guards: Any = torch._C._dynamo.guards

#: what the imports of the module define, as far as code for CPUs uses it
NAMES: Final[Mapping[str, Any]] = {
    "torch": torch,
    "device": torch.device,
    "empty_strided": torch.empty_strided,
    "aten": torch.ops.aten,
    "math": math,
    "inf": math.inf,
    "nan": math.nan,
    "assert_alignment": _guards.assert_alignment,
    "assert_size_stride": _guards.assert_size_stride,
    "empty_strided_cpu": _guards._empty_strided_cpu,
    "reinterpret_tensor": _guards._reinterpret_tensor,
}
#: the object whose attributes are torch's kernels that write into a given tensor: `extern_kernels.mm`
EXTERN: Final = "extern_kernels"

_HEADER = "#include <torch/csrc/inductor/cpp_prefix.h>\n"
_ENTRY = re.compile(r'extern "C"\s+void\s+kernel\(')
_POINTER = re.compile(r"[\w:<> ]+\*")


@dataclass(frozen=True)
class Kernel:
    """A function in C++ whose parameters are pointers to the data of tensors.

    Attributes:
        types: the types of the parameters, such as `const float*`.
        definition: the definition of the function `kernel`, which needs TorchInductor's header.
    """

    types: tuple[str, ...]
    definition: str


@dataclass(frozen=True)
class Wrapper:
    """The function of a module, and the kernels that it calls.

    Attributes:
        function: the definition of a Python function `call(args)`, which empties a list of tensors.
        kernels: the kernels by the names that the function has for them.
    """

    function: str
    kernels: Mapping[str, Kernel]


def wrapper_of(module: str, has_extern: Callable[[str], bool]) -> Wrapper | None:
    """Return the function and the kernels of a module, or None if they do not run without it.

    `has_extern` returns whether an attribute of `extern_kernels` is torch's function of the same name.
    """
    tree = ast.parse(module)
    kernels = {name: kernel for name, kernel in map(_kernel, tree.body) if name is not None}
    function = _call_function(tree)
    if function is None or any(kernel is None for kernel in kernels.values()):
        return None
    externs = _Externs(has_extern)
    function = externs.visit(function)
    names = [node for node in ast.walk(function) if isinstance(node, ast.Name)]
    used = {name.id for name in names}
    assigned = {name.id for name in names if isinstance(name.ctx, ast.Store)}
    if externs.unknown or not used <= {*NAMES, *kernels, *assigned, "args"}:
        return None
    chosen = {name: kernel for name, kernel in kernels.items() if kernel is not None and name in used}
    return Wrapper(ast.unparse(function), chosen)


def function_of(
    function: str, kernels: Mapping[str, Callable[..., None]]
) -> Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]:
    """Return the Python function of a module, which calls these kernels."""
    namespace: dict[str, Any] = {**NAMES, **kernels}
    exec(compile(function, "<code of TorchInductor>", "exec"), namespace)
    call: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]] = namespace["call"]
    return call


def _kernel(statement: ast.stmt) -> tuple[str | None, Kernel | None]:
    """Return the name and the kernel that a statement defines; no name if it defines none.

    There is no kernel for one that is not in C++, or whose definition cannot stand beside others in a file.
    """
    match statement:
        case ast.Assign(
            [ast.Name(name)], ast.Call(ast.Attribute(ast.Name("async_compile"), method), arguments)
        ):
            pass
        case _:
            return None, None
    if method != "cpp_pybinding" or len(arguments) != 2:
        return name, None
    types, source = map(ast.literal_eval, arguments)
    definition, entries = _ENTRY.subn("void kernel(", source.replace(_HEADER, ""))
    has_directive = re.search(r"^\s*#\s*(?!pragma)\w", definition, re.MULTILINE)
    if entries != 1 or has_directive or not all(_POINTER.fullmatch(type) for type in types):
        return name, None
    return name, Kernel(tuple(types), definition)


def _call_function(tree: ast.Module) -> ast.FunctionDef | None:
    """Return the function `call(args)` of a module, where it may be a method."""
    for statement in tree.body:
        is_class = isinstance(statement, ast.ClassDef) and statement.name == "Runner"
        for function in statement.body if is_class else [statement]:  # type: ignore[attr-defined]
            if isinstance(function, ast.FunctionDef) and function.name == "call":
                if is_class:
                    del function.args.args[0]  # self, which the function uses in modules of several graphs
                return function
    return None


class _Externs(ast.NodeTransformer):
    """Replaces `extern_kernels.mm` by `torch.mm`."""

    def __init__(self, has_extern: Callable[[str], bool]) -> None:
        self._has_extern = has_extern
        self.unknown = False

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Replace an attribute of `extern_kernels`."""
        self.generic_visit(node)
        if not isinstance(node.value, ast.Name) or node.value.id != EXTERN:
            return node
        self.unknown = self.unknown or not self._has_extern(node.attr)
        return ast.Attribute(ast.Name("torch", ast.Load()), node.attr, node.ctx)
