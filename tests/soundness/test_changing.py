"""Programs over things that change between two calls do what eager does, or are refused as listed."""

from __future__ import annotations

import functools

import pytest
import torch

import thunder
from soundness import changing_classes, changing_functions, changing_namespaces, changing_values
from soundness.changes_between_calls import ROWS, wrong_calls
from soundness.harness import ramp

#: programs that are refused, each because native code would read what thunder does not see
REFUSED = frozenset(
    {
        "cache_cleared_within",
        "cache_info",
        "closure_read",
        "compiled_text",
        "globals_items",
        "globals_iterated",
        "init_subclass",
        "int_sub",
        "simple_namespace",
    }
)


@pytest.mark.parametrize("name", ROWS)
def test_a_change_is_noticed(name):
    assert wrong_calls(ROWS[name]) == (["refused"] if name in REFUSED else [])


def test_every_file_of_programs_adds_to_the_table():
    files = (changing_classes, changing_functions, changing_namespaces, changing_values)
    assert {f.__module__ for f in ROWS.values()} == {m.__name__ for m in files}
    assert ROWS.keys() >= REFUSED


def test_the_guards_of_a_cached_function_count_as_no_use():
    @functools.lru_cache
    def number(n):
        return n * 2.0

    compiled = thunder.jit(lambda x: x * number(3))
    for asked in (1, 2, 3):
        assert torch.equal(compiled(ramp(3)), ramp(3) * 6.0)
        assert number.cache_info().hits + number.cache_info().misses == asked


NAMES = (
    ["a-b"],
    ["self"],
    ["args", "kwargs"],
    ["v0", "v1", "t0", "t1"],
    ["check_tensors", "is_grad_enabled", "lookup_type"],
    ["torch", "Tensor", "ltorch", "prims", "no_autocast"],
    ["class", "lambda", "return", "None"],
    ["x y", "x_y", "a.b", "", "0", "\n", "é", "_"],
    ["len", "type", "print", "float", "hasattr", "input"],
    ["prologue", "computation", "fn"],
)


@pytest.mark.parametrize("names", NAMES, ids=lambda names: repr(names[0]))
def test_any_keyword_is_an_argument(names):
    def program(**values):
        return sum(v * (i + 1) for i, v in enumerate(values.values())), list(values)

    compiled = thunder.jit(program)
    tensors = {name: ramp(3, start=float(i)) for i, name in enumerate(names)}
    for values in (tensors, tensors, dict.fromkeys(names, 2.0)):
        total, found = compiled(**values)
        expected = program(**values)
        assert found == expected[1]
        assert torch.equal(torch.as_tensor(total), torch.as_tensor(expected[0]))


@pytest.mark.parametrize("name", ["len", "type", "check_tensors", "float", "args", "torch"])
def test_any_name_is_a_parameter(name):
    namespace: dict = {}
    exec(f"def program({name}): return {name} * 2 + float('1')".replace("float('1')", "1.0"), namespace)
    compiled = thunder.jit(namespace["program"])
    for _ in range(2):
        assert torch.equal(compiled(ramp(3)), ramp(3) * 2 + 1.0)
