"""Native code that a program calls, and what stands in its place."""

from collections import OrderedDict
from dataclasses import dataclass, fields

import numpy as np
import pytest
import torch
from torch import Tensor

import thunder


def halved(x: Tensor, by: int) -> Tensor:
    if by > 1:
        x = x / by
    return x.sqrt()


halved_by_script = torch.jit.script(halved)
first_of_two = torch.jit.trace(lambda x: x + 1, torch.ones(2))


class Config:
    """Numbers that a program reads."""

    size = 6


config = Config()


def test_elementwise_functions_of_numpy_compute_with_numbers() -> None:
    def fn(x: Tensor) -> Tensor:
        return x * np.sqrt(config.size) + int(np.lcm(4, config.size)) - np.log(2.0)

    compiled, x = thunder.jit(fn), torch.randn(3)
    for size in (6, 8):
        config.size = size
        assert torch.equal(compiled(x), fn(x))
    assert thunder.cache_misses(compiled) == 2, "the number is a fact"


def test_which_function_of_numpy_it_is_is_a_fact() -> None:
    functions = [np.sqrt]

    def fn(x: Tensor) -> Tensor:
        return x * functions[0](4.0)

    compiled, x = thunder.jit(fn), torch.ones(2)
    assert torch.equal(compiled(x), x * 2)
    functions[0] = np.square
    assert torch.equal(compiled(x), x * 16)


def test_functions_of_numpy_do_not_get_tensors_or_arrays() -> None:
    with pytest.raises(thunder.UnsupportedProgram, match="numpy"):
        thunder.jit(lambda x: np.sqrt(x))(torch.ones(2))
    array = np.ones(2)
    with pytest.raises(thunder.UnsupportedProgram, match="ndarray"):
        thunder.jit(lambda x: x * np.sqrt(array)[0])(torch.ones(2))


def test_a_scripted_function_is_the_python_function_that_it_was_made_of() -> None:
    compiled, x = thunder.jit(lambda x, by: halved_by_script(x, by) * 2), torch.rand(3)
    for by in (1, 2):
        assert torch.equal(compiled(x, by), halved_by_script(x, by) * 2)
    assert thunder.last_traces(compiled)[0].bound_symbols[0].source_filename == __file__


def test_a_graph_of_torch_jit_trace_is_refused() -> None:
    with pytest.raises(thunder.UnsupportedProgram, match=r"torch\.jit\.trace"):
        thunder.jit(lambda x: first_of_two(x))(torch.ones(2))


def test_hints_to_torchdynamo_on_what_the_program_made_are_left_out() -> None:
    def fn(x: Tensor) -> Tensor:
        state = torch.zeros(3)
        state._dynamo_static_input_type = "unguarded"  # as torch._dynamo.mark_static_address does
        return state + x

    assert torch.equal(thunder.jit(fn)(torch.ones(3)), torch.ones(3))


@dataclass
class Named(OrderedDict):
    """A mapping that is a dataclass, of which an item may go once it is made."""

    first: Tensor | None = None
    second: Tensor | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            super().__setitem__(field.name, getattr(self, field.name))
        super().__delitem__("first")


def test_items_of_a_mapping_of_the_programs_own_are_deleted_natively() -> None:
    def fn(x: Tensor) -> list[str]:
        return list(Named(x, x))

    assert thunder.jit(fn)(torch.ones(1)) == ["second"]
