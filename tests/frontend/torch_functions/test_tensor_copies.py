"""``copy`` of tensors and modules in compiled programs, and conversions of modules that change nothing."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.errors import UnsupportedProgram


@dataclasses.dataclass
class Outputs:
    """A result with a tensor and plain values."""

    hidden: torch.Tensor
    steps: int = 3


def check(program: Any, *inputs: torch.Tensor) -> Any:
    """Compare results with eager's; return the compiled program."""
    compiled = thunder.jit(program)
    for x in inputs:
        torch.testing.assert_close(compiled(x), program(x), rtol=0, atol=0)
    return compiled


def test_a_deep_copy_of_a_tensor_has_memory_of_its_own():
    table = torch.ones(3)

    def program(x):
        copied = copy.deepcopy({"t": table, "same": table, "x": x})
        copied["t"].add_(1)
        return copied["t"] + copied["same"] + table, copied["x"] * 2

    compiled = check(program, torch.zeros(3), torch.ones(3))
    assert thunder.cache_misses(compiled) == 1
    assert torch.equal(table, torch.ones(3))


def test_a_deep_copy_of_a_tensor_that_is_no_leaf_raises_eagers_error():
    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="Only Tensors created explicitly by the user"):
        thunder.jit(lambda x: copy.deepcopy(x * 2))(x)


@pytest.mark.parametrize(
    ("tensors", "reason"),
    [
        (lambda t: [t, t[:2]], "shares memory"),
        (lambda t: [t[::2]], "gaps between its elements"),
    ],
)
def test_deep_copies_that_would_share_memory_or_have_gaps_are_refused(tensors, reason):
    held = tensors(torch.arange(4.0))
    with pytest.raises(UnsupportedProgram, match=reason):
        thunder.jit(lambda x: [x + t.sum() for t in copy.deepcopy(held)])(torch.ones(1))


def test_inputs_that_begin_to_share_memory_are_not_copied_apart():
    t = torch.arange(4.0)

    def program(x, pair):
        first, second = copy.deepcopy(pair)
        first.add_(1)
        return second + x

    compiled = thunder.jit(program)
    assert torch.equal(compiled(torch.zeros(4), [t, t.clone()]), t)
    with pytest.raises(UnsupportedProgram, match="shares memory"):
        compiled(torch.zeros(4), [t, t.view(4)])


def test_dataclasses_become_dicts_and_tuples_of_copies():
    def program(x):
        outputs = Outputs(x * 2)
        return dataclasses.asdict(outputs), dataclasses.astuple(outputs)

    check(program, torch.ones(2), torch.zeros(2))


class Teacher(nn.Module):
    """A student, and its teacher, made in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.student = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> Any:
        with torch.no_grad():
            teacher = copy.deepcopy(self.student).eval()
            for parameter in teacher.parameters():
                parameter.mul_(0.5)
            teacher.requires_grad_(False)
        return self.student(x) - teacher(x).detach(), teacher.training


def test_a_module_is_copied_with_its_parameters():
    model = Teacher()
    compiled = check(model, torch.ones(1, 3))
    with torch.no_grad():
        model.student.weight.mul_(3)
    x = torch.full((1, 3), 2.0)
    torch.testing.assert_close(compiled(x), model(x), rtol=0, atol=0)
    compiled(x)[0].sum().backward()
    actual, model.student.weight.grad = model.student.weight.grad, None
    model(x)[0].sum().backward()
    torch.testing.assert_close(actual, model.student.weight.grad)
    assert thunder.cache_misses(compiled) == 1


class Placed(nn.Module):
    """Converts its parts in each call."""

    def __init__(self, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.part = nn.LSTM(3, 2)
        self.register_buffer("scale", torch.full((), 2.0, dtype=dtype))

    def forward(self, x: torch.Tensor) -> Any:
        self.to(x.device)
        self.part.float().to(device=x.device, dtype=x.dtype, non_blocking=True)
        return self.to(x).part(x * self.scale)[0], self.scale.element_size()


def test_a_conversion_of_a_module_to_its_own_form_changes_nothing():
    compiled = check(Placed(), torch.ones(1, 3), torch.zeros(1, 3))
    assert thunder.cache_misses(compiled) == 1
    check(Placed(torch.float64), torch.ones(1, 3))  # a buffer is converted


def test_a_conversion_of_parameters_is_refused():
    with pytest.raises(UnsupportedProgram, match="converts a parameter of a module"):
        thunder.jit(Placed().double())(torch.ones(1, 3))
