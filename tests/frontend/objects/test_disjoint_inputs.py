"""Inputs that share memory which is written; `skip_inplace_alias_updates=True` vouches that none do."""

from __future__ import annotations

import numpy
import pytest
import torch

import thunder


def adds_in_place(x, y):
    x.add_(1)
    return x * y


def facts(compiled):
    return str(thunder.last_prologue_traces(compiled)[-1])


def test_a_program_that_writes_has_no_guard_on_shared_memory():
    x, y = torch.ones(3), torch.full((3,), 2.0)
    guarded = thunder.jit(adds_in_place)
    compiled = thunder.jit(adds_in_place, skip_inplace_alias_updates=True)
    for function in (guarded, compiled):
        assert torch.equal(function(x.clone(), y), torch.full((3,), 4.0))
    assert "overlap" in facts(guarded)
    assert "overlap" not in facts(compiled)


def test_inputs_that_share_memory_when_the_program_is_compiled_are_refused():
    memory = torch.ones(4)
    with pytest.raises(thunder.InvalidArgument, match=r"sharing:  args\[0\], args\[1\]"):
        thunder.jit(adds_in_place, skip_inplace_alias_updates=True)(memory[:3], memory[1:])


def test_programs_that_write_nothing_are_not_concerned():
    memory = torch.ones(4)
    compiled = thunder.jit(lambda x, y: x + y, skip_inplace_alias_updates=True)
    assert torch.equal(compiled(memory[:3], memory[1:]), torch.full((3,), 2.0))


def test_tensors_of_one_numpy_array_share_memory():
    array = numpy.zeros(5, dtype=numpy.float32)
    x, y = torch.from_numpy(array[:4]), torch.from_numpy(array[1:])
    compiled = thunder.jit(adds_in_place)
    compiled(torch.zeros(4), torch.zeros(4))
    with pytest.raises(thunder.UnsupportedProgram, match="by a storage of its own"):
        compiled(x, y)
    assert not array.any()
    whole, again = torch.from_numpy(array), torch.from_numpy(array)
    assert torch.equal(compiled(whole, again), torch.ones(5))
    assert array.all()


@pytest.mark.parametrize("second", [slice(1, None), slice(1, None, 2), slice(3, None)])
def test_a_later_call_with_shared_memory_is_computed_as_in_eager(second):
    compiled = thunder.jit(adds_in_place)
    compiled(torch.zeros(3), torch.zeros(3))
    results = []
    for function in (compiled, adds_in_place):
        memory = torch.arange(7.0)
        results.append((function(memory[:5:2], memory[second][:3]), memory))
    torch.testing.assert_close(*results)
