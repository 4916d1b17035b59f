"""Functions of torch that answer without computing, asked about tensors and about anything else: eager's
answer, its error, or a refusal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from recorded_refusals import Refusals, refusals_as_recorded
from sweeping import one_in
from thunder.base.errors import UnsupportedProgram

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions

MODULE = torch.nn.Linear(3, 3)

#: what is asked about: an input and a parameter, what is made of them, and objects that are not tensors
SUBJECTS: dict[str, Callable[[torch.Tensor, torch.nn.Parameter], Any]] = {
    "input": lambda x, p: x,
    "parameter": lambda x, p: p,
    "intermediate": lambda x, p: x * 2,
    "integers": lambda x, p: (x * 2).to(torch.int32),
    "complex": lambda x, p: torch.complex(x, x),
    "truth values": lambda x, p: x > 0,
    "no dimensions": lambda x, p: x.sum(),
    "item": lambda x, p: x.sum().item(),
    "int": lambda x, p: 3,
    "bool": lambda x, p: True,
    "float": lambda x, p: 2.5,
    "None": lambda x, p: None,
    "str": lambda x, p: "a",
    "list": lambda x, p: [x, x],
    "dtype": lambda x, p: torch.float32,
    "another dtype": lambda x, p: torch.int8,
    "size": lambda x, p: x.shape,
    "module": lambda x, p: MODULE,
    "device": lambda x, p: torch.device("cpu"),
    "function": lambda x, p: torch.add,
    "type": lambda x, p: float,
}

_ONE = """
    get_default_device get_default_dtype get_device is_autocast_enabled is_complex is_conj is_distributed
    is_floating_point is_grad_enabled is_inference is_inference_mode_enabled is_neg is_nonzero is_signed
    is_storage is_tensor numel typename finfo iinfo _is_zerotensor are_deterministic_algorithms_enabled
    is_vulkan_available
"""
_OF_TENSOR = """
    dim ndimension size numel nelement element_size stride storage_offset get_device is_complex is_conj
    is_contiguous is_distributed is_floating_point is_inference is_neg is_pinned is_shared is_signed dense_dim
    sparse_dim type
"""
ONE: dict[str, Callable[..., Any]] = {
    **{f"torch.{name}": getattr(torch, name) for name in _ONE.split()},
    **{f"torch.Tensor.{name}": getattr(torch.Tensor, name) for name in _OF_TENSOR.split()},
    "torch.overrides.is_tensor_like": torch.overrides.is_tensor_like,
    "torch.overrides.has_torch_function": torch.overrides.has_torch_function,
    "isinstance(torch.Tensor)": lambda x: isinstance(x, torch.Tensor),
    "isinstance(torch.nn.Parameter)": lambda x: isinstance(x, torch.nn.Parameter),
    "finfo of dtype": lambda x: (torch.finfo(x.dtype).eps, torch.finfo(x.dtype).bits),
}
TWO: dict[str, Callable[..., Any]] = {
    "torch.result_type": torch.result_type,
    "torch.promote_types": torch.promote_types,
    "torch.can_cast": torch.can_cast,
    "torch.is_same_size": torch.is_same_size,
    "torch.Tensor.size": torch.Tensor.size,
}
OF_TWO = (
    "input",
    "integers",
    "no dimensions",
    "int",
    "float",
    "None",
    "dtype",
    "another dtype",
    "type",
    "item",
)


def answer(fn: Callable[..., Any]) -> Any:
    torch.manual_seed(0)
    try:
        return fn(torch.rand(2, 3), torch.nn.Parameter(torch.rand(2)))
    except Exception as error:  # each question has its own
        return error


def wrong(refusals: Refusals, fn: Callable[..., Any], *names: str) -> str | None:
    """Return what is wrong with the answer of a compiled program, or None; note a refusal."""

    def ask(x: torch.Tensor, p: torch.nn.Parameter) -> Any:
        return fn(*[SUBJECTS[name](x, p) for name in names])

    theirs, ours = answer(ask), answer(thunder.jit(ask))
    if isinstance(ours, UnsupportedProgram):
        refusals.add(", ".join(names) or "nothing", ours)
        return None
    if isinstance(theirs, Exception):
        return None if isinstance(ours, type(theirs)) else f"{names}: {ours!r}, and eager raises {theirs!r}"
    return (
        None
        if type(ours) is type(theirs) and repr(ours) == repr(theirs)
        else f"{names}: {ours}, not {theirs}"
    )


@pytest.mark.parametrize("name", one_in(4, ONE))
def test_a_question_about_anything_is_answered_as_eager_answers_it(name: str) -> None:
    if name == "torch.typename":  # of None it reads an attribute that the interpreter does not have
        subjects = [subject for subject in SUBJECTS if subject not in ("None", "item")]
    else:
        subjects = list(SUBJECTS)
    with refusals_as_recorded("questions about one object", name) as refusals:
        found = [wrong(refusals, ONE[name], subject) for subject in subjects]
        found.append(wrong(refusals, ONE[name]))
    assert [f for f in found if f is not None] == []


@pytest.mark.parametrize("name", TWO)
def test_a_question_about_two_things_is_answered_as_eager_answers_it(name: str) -> None:
    with refusals_as_recorded("questions about two objects", name) as refusals:
        found = [wrong(refusals, TWO[name], first, second) for first in OF_TWO for second in OF_TWO]
    assert [f for f in found if f is not None] == []


def test_dtypes_are_compared_without_a_tensor() -> None:
    def program(x: torch.Tensor) -> Any:
        return x.to(torch.promote_types(torch.float16, torch.float64)), torch.can_cast(
            torch.float32, torch.int8
        )

    converted, can = thunder.jit(program)(torch.rand(2))
    assert converted.dtype is torch.float64
    assert can is False
