"""Primitives that no operator of torch calls: grouped products, numbers of a seed and an offset, aliases."""

from __future__ import annotations

import inspect

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder.core import prims
from thunder.core.devices import Device

CPU = Device("cpu")

FORMS = {
    "rows of the first": ((6, 8), (2, 8, 16), (2, 6)),
    "columns of the second": ((2, 4, 8), (8, 16), (8, 16)),
    "the dimension of the sum": ((4, 16), (16, 8), (8, 16)),
}


def grouped(a, b, ends):
    """The product of each group, by torch's `matmul`."""
    bounds = list(zip((0, *ends[:-1]), ends, strict=True))
    if b.dim() == 3:
        return torch.cat([a[i:j] @ m for (i, j), m in zip(bounds, b, strict=True)])
    if a.dim() == 3:
        return torch.cat([m @ b[:, i:j] for (i, j), m in zip(bounds, a, strict=True)], 1)
    return torch.stack([a[:, i:j] @ b[i:j] for i, j in bounds])


@pytest.mark.parametrize("form", FORMS)
def test_a_grouped_product_and_its_gradients_are_those_of_its_groups(form):
    a_shape, b_shape, ends = FORMS[form]
    a, b = torch.randn(a_shape, requires_grad=True), torch.randn(b_shape, requires_grad=True)
    offsets = torch.tensor(ends, dtype=torch.int32)
    options = thunder.DebugOptions(check_traces=True)
    compiled = thunder.jit(lambda a, b, o: prims._grouped_mm(a, b, o), debug_options=options)
    result, expected = compiled(a, b, offsets), grouped(a, b, ends)
    torch.testing.assert_close(result, expected)
    g = torch.randn_like(result)
    torch.testing.assert_close(
        torch.autograd.grad(result, (a, b), g), torch.autograd.grad(expected, (a, b), g)
    )


@pytest.mark.parametrize(
    ("a", "b", "offsets", "text"),
    [
        (torch.ones(2), torch.ones(2), torch.ones(1, dtype=torch.int32), "takes matrices"),
        (torch.ones(2, 3), torch.ones(2, 4, 3), torch.ones(2, dtype=torch.int32), "cannot be multiplied"),
        (torch.ones(2, 3), torch.ones(2, 3, 3), torch.ones(2), "have to be int32"),
        (torch.ones(2, 3), torch.ones(2, 3, 3).double(), torch.ones(2, dtype=torch.int32), "factors differ"),
        (torch.ones(2, 3), torch.ones(2, 3, 3), None, "Have to provide offsets"),
        (torch.ones(2, 3).double(), torch.ones(2, 3, 3).double(), None, "Expected mat_a to be Float32"),
    ],
)
def test_factors_that_do_not_fit_are_refused(a, b, offsets, text):
    with pytest.raises(thunder.OperatorError, match=text):
        thunder.jit(lambda a, b, o: prims._grouped_mm(a, b, o))(a, b, offsets)


CALLS = {
    "weights": lambda x, w, o: F.grouped_mm(x, w.transpose(-2, -1), offs=o),
    "batches": lambda x, w, o: torch._grouped_mm(torch.stack([x, x + 1, x - 1]), w.mT),
    "columns": lambda x, w, o: torch._grouped_mm(w, x.t(), o),
    "sums": lambda x, w, o: torch._grouped_mm(x.t(), w.reshape(8, -1), o),
    "padded rows": lambda x, w, o: torch._grouped_mm(x, w[:, :5].mT, o).reshape(-1),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", CALLS)
def test_grouped_products_of_torch_are_those_of_eager(name, dtype):
    program, offsets = CALLS[name], torch.tensor([2, 4, 8], dtype=torch.int32)
    x, w = (torch.randn(shape, dtype=dtype, requires_grad=True) for shape in ((8, 16), (3, 8, 16)))
    compiled = thunder.jit(program, debug_options=thunder.DebugOptions(check_traces=True))
    result, expected = compiled(x, w, offsets), program(x, w, offsets)
    assert torch.equal(result, expected)
    assert result.stride() == expected.stride()
    if name != "padded rows":  # torch has no gradient of those
        g = torch.randn_like(expected)
        torch.testing.assert_close(
            torch.autograd.grad(result, (x, w), g), torch.autograd.grad(expected, (x, w), g)
        )


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"bias": torch.ones(16)}, "Bias not supported"),
        ({"out_dtype": torch.float64}, "output dtype must match"),
    ],
)
def test_options_that_torch_refuses_are_refused(options, text):
    x, w, offsets = torch.ones(8, 16), torch.ones(1, 16, 16), torch.tensor([8], dtype=torch.int32)
    with pytest.raises(thunder.OperatorError, match=text):
        thunder.jit(lambda x, w, o: torch._grouped_mm(x, w, o, **options))(x, w, offsets)


def uniform(seed, offset, shape=(1000,)):
    return prims.uniform_philox(shape, -1.0, 3.0, device=CPU, dtype=thunder.float32, seed=seed, offset=offset)


def test_a_seed_and_an_offset_give_the_same_numbers_each_time():
    def program(x):
        return x + uniform(7, 0), x + uniform(7, 0), x + uniform(7, 4), x + uniform(8, 0)

    state = torch.get_rng_state()
    first, again, later, other = thunder.jit(program)(torch.zeros(1000))
    assert torch.equal(first, again)
    assert not torch.equal(first, later)
    assert not torch.equal(first, other)
    assert not torch.equal(later, other)
    assert torch.equal(state, torch.get_rng_state())
    assert -1 <= first.min() < -0.9
    assert 2.9 < first.max() <= 3
    assert abs(first.mean() - 1) < 0.15


def test_a_state_of_the_default_generator_is_a_seed_for_later_numbers():
    def program(x):
        seed, offset = prims.get_and_update_rng_state(None, None, CPU)
        numbers = uniform(seed, offset)
        seed, offset = prims.get_and_update_rng_state(seed, offset, CPU)
        return x + numbers, x + uniform(seed, offset)

    compiled = thunder.jit(program)
    torch.manual_seed(3)
    results = [compiled(torch.zeros(1000)) for _ in range(2)]
    torch.manual_seed(3)
    assert torch.equal(torch.stack(results[0]), torch.stack(compiled(torch.zeros(1000))))
    distinct = [tensor for result in results for tensor in result]
    assert len({tuple(tensor.tolist()) for tensor in distinct}) == 4


def test_aliases_are_the_tensors_under_other_names():
    def program(x, y):
        a, b = prims.update_aliases((x, y))
        return (a * b).sum(), a

    x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
    total, alias = thunder.jit(program)(x, y)
    assert torch.equal(alias, x)
    assert alias.data_ptr() == x.data_ptr()
    total.backward()
    assert torch.equal(x.grad, y)
    assert prims.PrimIDs.UPDATE_ALIASES == "prims.update_aliases"


NAMED = {
    "check_type": "x type",
    "unpack_dict_key": "d k",
    "unpack_attr": "o key",
    "unpack_getitem": "o key",
    "item": "t",
    "scatter": "a index src dim",
    "scatter_add": "a index value dim",
}


@pytest.mark.parametrize("name", NAMED)
def test_parameters_have_the_names_of_the_public_contract(name):
    assert list(inspect.signature(getattr(prims, name).meta).parameters) == NAMED[name].split()
