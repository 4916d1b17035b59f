"""`autocast(f, dtype)`: torch's contexts around the same function are the judge."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
from thunder.core.errors import InvalidArgument
from thunder.transforms.autocast import autocast


def program(x, w):
    h = torch.nn.functional.gelu(x @ w)
    return torch.softmax(h, -1), h, (h.float() + x).sum()


FORMS = {
    "of a compiled function": lambda f, dtype: autocast(thunder.jit(f), dtype),
    "compiled": lambda f, dtype: thunder.jit(autocast(f, dtype)),
    "in eager": autocast,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, thunder.bfloat16])
def test_results_and_gradients_are_those_under_torch_autocast(form, dtype):
    under = FORMS[form](program, dtype)
    x, w = torch.linspace(-1, 1, 16).view(4, 4), torch.linspace(1, -1, 16).view(4, 4).requires_grad_()
    results = under(x, w)
    assert not torch.is_autocast_enabled("cpu")
    torch_dtype = torch.float16 if dtype is torch.float16 else torch.bfloat16
    with torch.autocast("cpu", dtype=torch_dtype):
        expected = program(x, w)
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.dtype is theirs.dtype
        assert torch.equal(ours, theirs)
    gradients = [torch.autograd.grad(r[2], w)[0] for r in (results, expected)]
    assert torch.equal(*gradients)


def test_the_casts_are_statements_and_the_compiled_function_keeps_its_program():
    compiled = thunder.jit(nn.Linear(4, 4))
    x = torch.ones(2, 4)
    assert autocast(compiled, torch.bfloat16)(x).dtype is torch.bfloat16
    assert "torch.bfloat16" in thunder.last_traces(compiled)[-1].python()
    assert compiled(x).dtype is torch.float32
    autocast(compiled, torch.bfloat16)(x)
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize(
    ("func", "dtype", "text"),
    [(torch.sin, torch.float32, "autocast to torch.float32"), (3, torch.bfloat16, "received int")],
)
def test_arguments_without_meaning_are_refused(func, dtype, text):
    with pytest.raises(InvalidArgument, match=text):
        autocast(func, dtype)
