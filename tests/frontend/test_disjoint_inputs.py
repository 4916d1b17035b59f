"""`skip_inplace_alias_updates=True`: the user vouches that inputs share no memory that the program writes."""

from __future__ import annotations

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
