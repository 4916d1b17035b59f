"""What is known of a kernel from its source, against what Triton's interpreter writes."""

from __future__ import annotations

import itertools
import linecache
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from thunder_triton.user_kernels.kernel_effects import KernelEffects, effects_of
from triton_executor.interpreted import user_kernels

#: Triton's interpreter adds the names of its own module to the globals of a kernel: these have none of them
_numbers = itertools.count()


def compiled_kernel(source: str, name: str = "kernel") -> Any:
    """Return the kernel of a source, which is read as that of a file."""
    file = f"<kernel {next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    namespace: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    exec(compile(source, file, "exec"), namespace)
    return namespace[name]


def may_write(effects: KernelEffects, tensors: set[str]) -> set[str]:
    """Return the tensors that a kernel may write to, as its effects say."""
    return {name for names in (*effects.stores, effects.passed_on) for name in names} & tensors


@pytest.mark.parametrize("kernel", user_kernels.WRITTEN, ids=lambda kernel: kernel.fn.__name__)
def test_the_tensors_that_a_kernel_writes_are_known(kernel: Any):
    effects = effects_of(kernel)
    tensors = {name for name in effects.parameters if name.endswith("_ptr") or name in ("X", "OUT")}
    assert effects.is_known
    assert may_write(effects, tensors) == set(user_kernels.WRITTEN[kernel])


POINTERS = ("a", "b", "c", "d")
VARIABLES = ("p", "q", "r")
FLAGS = ("F", "G")
HELPERS = """
@triton.jit
def bump(target, value):
    tl.store(target, tl.load(target) + value)

@triton.jit
def pick(first, second, unused):
    tl.load(unused)
    return second

@triton.jit
def swap(x, y):
    return y, x
"""


def _statements(draw: Any, depth: int) -> list[str]:
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        lines += _statement(draw, draw(st.integers(0, 11 if depth else 8)), depth)
    return ["    " + line for line in lines]


def _statement(draw: Any, kind: int, depth: int) -> list[str]:
    if kind > 8:
        head = "for _ in range(2):" if kind == 9 else f"if {draw(st.sampled_from(FLAGS))}:"
        other = ["else:", *_statements(draw, depth - 1)] if kind == 11 else []
        return [head, *_statements(draw, depth - 1), *other]
    to, of, other = (draw(st.sampled_from(POINTERS + VARIABLES)) for _ in range(3))
    name, second = (draw(st.sampled_from(VARIABLES)) for _ in range(2))
    return {
        0: [f"{name} = {of}"],
        1: [f"{name} = {of} + tl.load({other}).to(tl.int32) % 2"],
        2: [f"tl.store({to}, tl.load({of}) + 1.5)"],
        3: [f"{name}, {second} = {of}, {other}"],
        4: [f"bump({to}, 2.5)", f"tl.store({to} + 1, tl.load({to} + 1) + 1.5)"],
        5: [f"{name} = pick({of}, {other}, {to})"],
        6: [f"{name}, {second} = swap({of}, {other})"],
        7: [f"tl.atomic_add({to}, 3.5)"],
        8: [f"{name} += 1", f"{name} -= 1"],
    }[kind]


@st.composite
def kernels(draw: Any) -> str:
    """Draw the source of a kernel that writes near the pointers it is passed."""
    head = "\n@triton.jit\ndef kernel(a, b, c, d, F: tl.constexpr, G: tl.constexpr):\n"
    first = [f"    {v} = {draw(st.sampled_from(POINTERS))}" for v in VARIABLES]
    return HELPERS + head + "\n".join([*first, *_statements(draw, 2)]) + "\n"


def _really_written(kernel: Any, F: bool, G: bool) -> set[str]:
    memory = {name: torch.arange(32.0) + i for i, name in enumerate(POINTERS)}
    before = {name: t.clone() for name, t in memory.items()}
    kernel[(1,)](*(t[8:] for t in memory.values()), F=F, G=G)
    return {name for name, t in memory.items() if not torch.equal(t, before[name])}


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(kernels())
def test_what_the_interpreter_writes_is_known(source: str):
    kernel = compiled_kernel(source)
    effects = effects_of(kernel)
    assert effects.is_known
    claimed = may_write(effects, set(POINTERS))
    for F, G in itertools.product((False, True), repeat=2):
        assert _really_written(kernel, F, G) <= claimed, source


UNKNOWN = {
    "a call that is not known": "    helper(x)",
    "a method that is not known": "    x.write(1)",
    "assembly": "    tl.inline_asm_elementwise('', '', [x], tl.int32, False, 1)",
    "a function that is passed": "    tl.map_elementwise(helper, x)",
    "a function of the arguments": "    F(x)",
    "a lambda": "    y = lambda: x",
    "an inner function": "    def inner():\n        pass",
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_code_that_is_not_known_may_write_to_all_that_it_is_passed(case: str):
    effects = effects_of(compiled_kernel(f"@triton.jit\ndef kernel(x, y, F):\n{UNKNOWN[case]}\n"))
    assert "x" in effects.passed_on


def test_a_kernel_without_a_source_may_write_to_all_its_tensors():
    namespace: dict[str, Any] = {"triton": triton, "tl": tl, "__name__": __name__}
    exec("@triton.jit\ndef kernel(x, y):\n    tl.store(x, 1)\n", namespace)
    effects = effects_of(namespace["kernel"])
    assert not effects.is_known
    assert effects.passed_on == ("x", "y")


def test_numbers_that_become_pointers_are_noted():
    assert effects_of(user_kernels.from_numbers).pointers == (((), ()),)
    source = "@triton.jit\ndef kernel(x, n):\n    p = n.to(x.dtype)\n    tl.store(p, tl.load(x))\n"
    assert effects_of(compiled_kernel(source)).pointers == ((("n",), ("x",)),)


def test_effects_are_derived_again_when_a_function_that_the_kernel_calls_is_another():
    source = (
        "@triton.jit\ndef write(x, y):\n    tl.store(x, 1.0)\n\n"
        "@triton.jit\ndef kernel(x, y):\n    write(x, y)\n"
    )
    kernel = compiled_kernel(source)
    first = effects_of(kernel)
    assert effects_of(kernel) is first
    assert first.stores == (("x",),)
    other = compiled_kernel("@triton.jit\ndef write(x, y):\n    tl.store(y, 1.0)\n", "write")
    kernel.fn.__globals__["write"] = other
    assert effects_of(kernel).stores == (("y",),)
