"""What is known of kernels from their source, against the intermediate code that Triton makes of them."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import thunder
import thunder_triton
from thunder.plugins import get_manager
from thunder_triton.user_kernels.kernel_effects import effects_of
from triton_executor.interpreted import user_kernels

#: without loops, whose values the code passes on in another way
STRAIGHT = tuple(kernel for kernel in user_kernels.WRITTEN if kernel is not user_kernels.blocks)
NUMBERS = {"n": "i32", "sx": "i32", "so": "i32", "scale": "fp32", "index_ptr": "*i64"}


def stored_parameters(code: str) -> set[str]:
    """Return the parameters from which the pointers of stores are computed, in code without loops."""
    computed: dict[str, tuple[str, list[str]]] = {}
    pointers: list[str] = []
    for line in code.splitlines():
        text = line.split(" loc(")[0].strip()
        named = re.match(r"(%\w+) = (\S+) (.*)", text)
        operation, rest = (named[2], named[3]) if named else (text.partition(" ")[0], text.partition(" ")[2])
        operands = re.findall(r"%\w+", rest)
        if named:
            computed[named[1]] = operation, operands
        if operation in ("tt.store", "tt.atomic_rmw"):
            pointers.append(operands[0])
    found: set[str] = set()
    while pointers:
        value = pointers.pop()
        operation, operands = computed.get(value, ("", []))
        if not operation:
            found.add(value.removeprefix("%"))
        elif operation != "tt.load":
            pointers += operands
    return found


@pytest.mark.parametrize("kernel", STRAIGHT, ids=lambda kernel: kernel.fn.__name__)
def test_the_written_parameters_are_those_of_the_code(kernel: Any):
    effects = effects_of(kernel)
    known = {name for store in effects.stores for name in store}
    stored: set[str] = set()
    for flag in (True, False):
        constants = {name: 16 if name == "BLOCK" else flag for name in effects.constexprs}
        types = {
            name: "constexpr" if name in constants else NUMBERS.get(name, "*fp32")
            for name in effects.parameters
        }
        places = {(effects.parameters.index(name),): value for name, value in constants.items()}
        source = ASTSource(fn=kernel, signature=types, constexprs=places)
        stored |= stored_parameters(triton.compile(source, target=GPUTarget("cuda", 90, 32)).asm["ttir"])
    pointers = {name for name, kind in types.items() if kind.startswith("*")}
    assert effects.is_known
    assert stored & pointers == known & pointers == set(user_kernels.WRITTEN[kernel])
    assert stored <= known


def test_a_plan_for_a_gpu_has_the_launches_of_a_program():
    def program(x: torch.Tensor) -> torch.Tensor:
        out = torch.empty_like(x)
        user_kernels.add[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](
            x, x, out, x.numel(), BLOCK=16
        )
        return out * 2

    with get_manager().temporary(thunder_triton, name="triton-under-test"):
        plan = thunder.plan(program, torch.empty(64, 4, device="meta"), device="h100", executors=["triton"])
    assert [row.symbol for row in plan.explain().rows] == ["kernel.add", "torch.mul"]
