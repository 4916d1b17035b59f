"""The kernels that a function of the library launches, compiled for a GPU that is not here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import JITFunction

__all__ = ["POINTERS", "compiled_launches"]

POINTERS = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int64: "*i64",
    torch.int32: "*i32",
    torch.bool: "*i1",
}

#: options of a launch that are no arguments of a kernel
_OPTIONS = ("num_warps", "num_stages", "debug")

Launch = tuple[JITFunction, tuple[Any, ...], dict[str, Any]]


def compiled_launches(module: ModuleType, function: Callable[[], Any], capability: int) -> dict[str, Any]:
    """Return Triton's results, by name of the kernel, for what a function launches.

    It gets tensors on the device "meta"; capability: such as 90.
    """
    with _recorded(module) as launches:
        function()
    assert launches, "nothing was launched"
    return {kernel.__name__: _compiled(kernel, *rest, capability) for kernel, *rest in launches}


@contextmanager
def _recorded(module: ModuleType) -> Iterator[list[Launch]]:
    """Record launches of a module in place of running them."""
    launches: list[Launch] = []

    def run(self: JITFunction, *arguments: Any, grid: Any, warmup: bool, **options: Any) -> None:
        launches.append((self, arguments, options))

    def launch(kernel: Any, options: dict[str, Any], *arguments: Any) -> None:
        kernel(*arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JITFunction, "run", run)
        patch.setattr(module, "launch", launch)
        yield launches


def _compiled(
    kernel: JITFunction, arguments: tuple[Any, ...], options: dict[str, Any], capability: int
) -> Any:
    """Compile a kernel for the arguments of a launch, specialised as Triton does: 1, multiples of 16."""
    values = dict(zip(kernel.arg_names, arguments, strict=False))
    values |= {name: value for name, value in options.items() if name not in _OPTIONS}
    assert values.keys() == set(kernel.arg_names), f"{kernel.__name__} is launched with other arguments"
    values = {name: values[name] for name in kernel.arg_names}
    constants = {parameter.name for parameter in kernel.params if parameter.is_constexpr}
    signature, attrs = {}, {}
    for place, (name, value) in enumerate(values.items()):
        signature[name] = "constexpr" if name in constants else _type(value)
        if signature[name].startswith(("*", "i")) and (signature[name][0] == "*" or value % 16 == 0):
            attrs[(place,)] = [["tt.divisibility", 16]]
    constexprs = {
        (place,): value
        for place, (name, value) in enumerate(values.items())
        if signature[name] == "constexpr"
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constexprs, attrs=attrs)
    chosen = {name: options[name] for name in _OPTIONS if name in options}
    return triton.compile(source, target=GPUTarget("cuda", capability, 32), options=chosen)


def _type(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return POINTERS[value.dtype]
    if isinstance(value, float):
        return "fp32"
    return "constexpr" if value == 1 else "i32" if abs(value) < 2**31 else "i64"
