"""Hooks on the tensors that are saved for a backward, inside of programs and around them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks

import thunder
from thunder.base.errors import UnsupportedProgram

PACKED: list[torch.Size] = []


def pack(x: torch.Tensor) -> torch.Tensor:
    PACKED.append(x.shape)
    return x


def unpack(x: torch.Tensor) -> torch.Tensor:
    return x


def offloads(x: torch.Tensor) -> Any:
    with save_on_cpu():
        return (x.exp() * x).sum()


def forbids(x: torch.Tensor) -> Any:
    with disable_saved_tensors_hooks("none here"):
        y = x.exp()
    with save_on_cpu():
        return (y * x).sum()


def forbids_and_offloads(x: torch.Tensor) -> Any:
    with disable_saved_tensors_hooks("none here"):
        return offloads(x)


def offloads_and_forbids(x: torch.Tensor) -> Any:
    with save_on_cpu(), disable_saved_tensors_hooks("none here"):
        return x.exp().sum()


def differentiates(x: torch.Tensor) -> Any:
    with save_on_cpu():
        y = x.exp()
    return torch.func.grad(lambda v: (v * y).sum())(x)


def outcome(fn: Any) -> Any:
    x = torch.linspace(0.0, 1.0, 3).requires_grad_()
    try:
        return torch.autograd.grad(fn(x).sum(), x)[0].tolist()
    except RuntimeError as error:
        return str(error)


@pytest.mark.parametrize(
    "program", [offloads, forbids, forbids_and_offloads, offloads_and_forbids, differentiates]
)
def test_regions_are_as_in_eager_also_where_the_caller_forbids_hooks_or_sets_them(program: Any) -> None:
    compiled = thunder.jit(program)
    for _ in range(2):
        assert outcome(compiled) == outcome(program)
        with disable_saved_tensors_hooks("the caller's text"):
            assert outcome(compiled) == outcome(program)
        with saved_tensors_hooks(pack, unpack):
            assert outcome(compiled) == outcome(program)


@pytest.mark.parametrize("kind", [saved_tensors_hooks, type("Own", (save_on_cpu,), {})])
def test_hooks_of_a_program_are_refused_and_an_opaque_function_may_set_them(kind: type) -> None:
    def hooked(x: torch.Tensor) -> Any:
        hooks = kind(pack, unpack) if kind is saved_tensors_hooks else kind()
        with hooks:
            return x.exp()

    with pytest.raises(UnsupportedProgram, match="hooks on the tensors that are saved"):
        thunder.jit(hooked)(torch.ones(3))
    around = thunder.opaque(hooked)
    assert outcome(thunder.jit(lambda x: around(x) * 2)) == outcome(lambda x: hooked(x) * 2)


def test_hooks_around_a_call_pack_what_the_compiled_program_saves() -> None:
    counts = []
    for fn in (lambda x: (x * x).exp(), thunder.jit(lambda x: (x * x).exp())):
        PACKED.clear()
        x = torch.ones(3, requires_grad=True)
        with saved_tensors_hooks(pack, unpack):
            y = fn(x)
        y.sum().backward()
        counts.append(len(PACKED))
        assert torch.equal(x.grad, 2 * x.exp())
    assert counts == [3, 2]
