"""The functions of a region say which region they compute, and in which form."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from thunder.ir.fusion_regions import Region
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import detached_trace
from thunder.ops.writing_regions import form_of, reusing_function, writing_function


def region(copied: tuple[tuple[int, int], ...], reused: tuple[tuple[int, int], ...]) -> Region:
    with detached_trace():
        a, b, c = (TensorProxy(name, shape=(2,), device="cpu", dtype=torch.float32) for name in "abc")
    return Region((), (a, b), (c, c), copied=copied, reused=reused)


def compute(a: Any, b: Any) -> Any:
    a += b
    return (a,)


def test_forms_that_write_and_that_reuse_are_told_apart() -> None:
    program = region(((0, 0),), ((1, 1),))
    function: Any = reusing_function(program, compute)
    derived: Any = function.form.reusing(frozenset({1}), frozenset())
    functions = {
        "plain": function,
        "in place": function.in_place.kernel(keeps_overwritten=False),
        "reuses": derived,
        "reuses in place": derived.in_place.kernel(keeps_overwritten=False),
    }
    forms = {name: form_of(made) for name, made in functions.items()}
    assert all(form is not None and form.region is program for form in forms.values())
    assert {name: (set(f.own), f.is_in_place) for name, f in forms.items() if f is not None} == {
        "plain": (set(), False),
        "in place": (set(), True),
        "reuses": ({1}, False),
        "reuses in place": ({1}, True),
    }


@pytest.mark.parametrize("is_reusing", [False, True])
def test_a_function_without_another_form_has_the_form_of_its_region(is_reusing: bool) -> None:
    program = region((), ((0, 0),)) if is_reusing else region(((0, 0),), ())
    form = form_of(reusing_function(program, compute) if is_reusing else writing_function(program, compute))
    assert form is not None
    assert (form.region is program, form.targets) == (True, [0] if is_reusing else [])
    assert form_of(compute) is None
    assert form_of(torch.add) is None
