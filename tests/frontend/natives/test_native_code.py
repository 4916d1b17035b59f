"""Native code that a program calls, and what stands in its place."""

import copy
import typing
from collections import OrderedDict
from dataclasses import dataclass, fields

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

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


def test_functions_of_numpy_do_not_get_tensors_or_arrays_of_objects() -> None:
    with pytest.raises(thunder.UnsupportedProgram, match="numpy"):
        thunder.jit(lambda x: np.sqrt(x))(torch.ones(2))
    array = np.array([None, 4.0])
    with pytest.raises(thunder.UnsupportedProgram, match="array of NumPy"):
        thunder.jit(lambda x: x * np.sqrt(array)[0])(torch.ones(2))


def test_a_scripted_function_is_the_python_function_that_it_was_made_of() -> None:
    compiled, x = thunder.jit(lambda x, by: halved_by_script(x, by) * 2), torch.rand(3)
    for by in (1, 2):
        assert torch.equal(compiled(x, by), halved_by_script(x, by) * 2)
    assert thunder.last_traces(compiled)[0].bound_symbols[0].source_filename == __file__


def test_a_graph_of_torch_jit_trace_is_refused() -> None:
    with pytest.raises(thunder.UnsupportedProgram, match=r"torch\.jit\.trace"):
        thunder.jit(lambda x: first_of_two(x))(torch.ones(2))


def test_hints_to_torchdynamo_on_computed_tensors_are_read_again_and_written_to_results() -> None:
    def inside(x: Tensor) -> Tensor:
        state = torch.zeros(3)
        state._dynamo_static_input_type = "unguarded"  # as torch._dynamo.mark_static_address does
        if not hasattr(state, "_dynamo_dynamic_indices"):
            state._dynamo_dynamic_indices = set()
        state._dynamo_dynamic_indices.add(1)
        return state + x * len(state._dynamo_dynamic_indices)

    assert torch.equal(thunder.jit(inside)(torch.ones(3)), torch.ones(3))

    def returned(x: Tensor) -> Tensor:
        state = x + 1
        state._dynamo_static_input_type = "unguarded"
        state._dynamo_dynamic_indices = {0, 1}
        return state

    compiled = thunder.jit(returned)
    for _ in range(2):
        result = compiled(torch.ones(3))
        assert torch.equal(result, 2 * torch.ones(3))
        assert vars(result) == {"_dynamo_static_input_type": "unguarded", "_dynamo_dynamic_indices": {0, 1}}


def test_only_the_code_of_copy_and_of_torchs_encoder_gets_their_exceptions() -> None:
    """A function with the globals of the library is not the library's function."""
    in_copy = eval("lambda x: x * (id(x) % 2)", vars(copy))
    with pytest.raises(thunder.SharpEdge, match=r"id\(\) differs"):
        thunder.jit(in_copy)(torch.ones(2))
    assert copy.deepcopy([1]) == [1]
    in_transformer = eval("lambda x: x * torch.compiler.is_compiling()", vars(torch.nn.modules.transformer))
    assert torch.equal(thunder.jit(in_transformer)(torch.ones(2)), torch.ones(2))


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


class Sized:
    """Has methods that native code could call."""

    def __len__(self):
        return 7

    def __eq__(self, other):
        return "equal"

    __hash__ = None


def test_a_comparison_of_a_string_does_not_look_into_other_objects():
    def program(x, annotation, sized):
        known = annotation == "Tensor" or annotation is torch.Tensor
        return x + known, sized == "Tensor", isinstance(sized, torch.nn.Parameter)

    compiled, x = thunder.jit(program), torch.ones(2)
    for annotation in (typing.Union[torch.Tensor, int], "Tensor", torch.Tensor, 3):  # noqa: UP007
        result, expected = compiled(x, annotation, Sized()), program(x, annotation, Sized())
        assert torch.equal(result[0], expected[0])
        assert result[1:] == expected[1:]


def test_backends_of_attention_are_guarded_by_value():
    def program(x, backend):
        with sdpa_kernel(backend):
            return x * (backend == SDPBackend.MATH)

    compiled, x = thunder.jit(program), torch.ones(2)
    for backend in (SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
        assert torch.equal(compiled(x, backend), program(x, backend))
    assert thunder.cache_misses(compiled) == 2
