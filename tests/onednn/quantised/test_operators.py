"""Kernels of quantised weights against the product in float64, and the calls that they do not take."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from onednn.quantised.reference import (
    SCHEMES,
    Case,
    calls,
    compiled_with,
    every_scheme,
    expected,
    needs_blocks,
    needs_vnni,
)
from sweeping import one_in
from thunder_onednn.quantised import eight_bits, operators

both_in_bfloat16 = pytest.mark.parametrize("scheme", ["int8", pytest.param("int4", marks=needs_blocks)])
KERNELS = {"int8-dynamic": "onednn_int8_dynamic", "int8": "onednn_int8", "int4": "onednn_int4"}


def assert_close(scheme: str, y: torch.Tensor, exact: torch.Tensor, x: torch.Tensor) -> None:
    """Compare with a product in float64: a rounding of the result, and those of a sum in float32.

    The order of the sum is that of the processor's instructions. Its error is about the root of the number of
    terms (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 2.6).
    """
    assert y.shape == exact.shape
    assert y.dtype is x.dtype
    eps = torch.finfo(y.dtype).eps
    size = exact.abs().amax().item() if exact.numel() else 0.0
    of_sum = x.shape[-1] ** 0.5 * torch.finfo(torch.float32).eps
    torch.testing.assert_close(y.double(), exact, rtol=2 * eps, atol=(4 * eps + of_sum) * size + 1e-30)


@every_scheme
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("number", one_in(3, range(30)))
def test_products_are_those_of_the_stored_weight_in_float64(scheme, number, threads):
    case = Case.of(number, scheme)
    layer, x = case.layer(), case.input()
    compiled = compiled_with(layer, scheme, group_size=case.group_size)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        y = compiled(x)
    finally:
        torch.set_num_threads(before)
    assert_close(scheme, y, expected(scheme, compiled, x, layer.bias), x)
    assert y.stride() == layer(x).stride()


@every_scheme
def test_inputs_with_other_strides_and_addresses(scheme):
    layer = nn.Linear(64, 64).bfloat16()
    compiled = compiled_with(layer, scheme, group_size=32)
    inputs = [
        torch.randn(64, 5).t(),
        torch.randn(5, 128)[:, ::2],
        torch.randn(1, 64).expand(5, 64),
        torch.randn(321)[1:].view(5, 64),
        torch.randn(5, 3, 64).transpose(0, 1),
    ]
    for x in (x.bfloat16() for x in inputs):
        assert_close(scheme, compiled(x), expected(scheme, compiled, x, layer.bias), x)
    assert KERNELS[scheme] in calls(compiled)


@both_in_bfloat16
@pytest.mark.parametrize("bias", [False, True])
def test_a_product_of_many_rows_is_computed_in_parts(scheme, bias, monkeypatch):
    monkeypatch.setattr(operators, "_PART", 0)
    layer = nn.Linear(64, 192 if scheme == "int4" else 150, bias).bfloat16()
    compiled, x = compiled_with(layer, scheme), torch.randn(2, 50, 64).bfloat16()
    assert_close(scheme, compiled(x), expected(scheme, compiled, x, layer.bias), x)
    assert calls(compiled) == [KERNELS[scheme]]


@every_scheme
@pytest.mark.parametrize("rows", [1, 3])
def test_a_weight_with_other_strides_is_stored_as_any(scheme, rows):
    layer, x = nn.Linear(64, 64).bfloat16(), torch.randn(rows, 64).bfloat16()
    transposed = nn.Linear(64, 64).bfloat16()
    transposed.weight = nn.Parameter(layer.weight.t().contiguous().t())
    transposed.bias = layer.bias
    assert not transposed.weight.is_contiguous()
    assert torch.equal(compiled_with(transposed, scheme)(x), compiled_with(layer, scheme)(x))


def test_an_input_and_a_weight_between_addresses_of_vectors_are_copied():
    """The kernel of int8 ends the process there."""
    layer = nn.Linear(64, 64, bias=False).bfloat16()
    compiled = compiled_with(layer, "int8")
    x = torch.randn(65).bfloat16()[1:]
    assert x.data_ptr() % 32
    stored = compiled.state_dict()
    memory = torch.empty(64 * 64 + 1, dtype=torch.int8)
    moved = memory[1:].view(64, 64).copy_(stored["weight"])
    compiled.override("weight", nn.Parameter(moved, requires_grad=False))
    assert_close("int8", compiled(x), expected("int8", compiled, x, None), x)
    assert calls(compiled) == ["onednn_int8"]


@needs_vnni
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_of_the_dynamic_product_is_the_same_beside_any_other_rows(dtype):
    layer = nn.Linear(100, 33).to(dtype)
    compiled = compiled_with(layer, "int8-dynamic")
    x = torch.randn(40, 100).to(dtype)
    x[3] *= 1000
    together = compiled(x)
    for i in (0, 3, 39):
        assert torch.equal(compiled(x[i : i + 1])[0], together[i])
        assert torch.equal(compiled(x[i : i + 7])[0], together[i])


@needs_vnni
def test_a_row_with_an_infinity_or_a_nan_is_lost_and_no_other_row():
    compiled = compiled_with(nn.Linear(64, 64), "int8-dynamic")
    x = torch.randn(4, 64)
    clean = compiled(x)
    x[1, 5], x[2, 6] = float("inf"), float("nan")
    y = compiled(x)
    assert torch.equal(y[[0, 3]], clean[[0, 3]])
    assert not y[1:3].isfinite().any()
    assert not compiled(x[1]).isfinite().any()


@both_in_bfloat16
def test_infinities_and_nans_go_through_products_in_bfloat16_as_in_eager(scheme):
    compiled = compiled_with(nn.Linear(64, 64, bias=False).bfloat16(), scheme)
    plain = compiled.original_state_dict()["weight"]
    x = torch.randn(4, 64).bfloat16()
    x[1, 5], x[2, 6] = float("inf"), float("nan")
    y, eager = compiled(x), F.linear(x, plain)
    for same in (torch.isnan, torch.isposinf, torch.isneginf):
        assert torch.equal(same(y), same(eager))


@every_scheme
def test_extreme_values(scheme):
    layer = nn.Linear(64, 128).bfloat16()
    layer.weight[0] = 0
    layer.weight[1] = 3.0
    layer.weight[2] *= 1e-30
    layer.weight[3] *= 1e30
    layer.weight[:, 7] = 0
    layer.bias[0] = 0
    compiled = compiled_with(layer, scheme)
    for x in (torch.zeros(3, 64), torch.randn(3, 64) * 1e-30, torch.randn(3, 64) * 1e4, torch.eye(64)):
        x = x.bfloat16()
        y, exact = compiled(x), expected(scheme, compiled, x, layer.bias)
        for column in range(5):  # each has a size of its own
            assert_close(scheme, y[:, column], exact[:, column], x)
        assert (y[:, 0] == 0).all()


@every_scheme
def test_one_program_serves_all_numbers_of_rows(scheme):
    layer = nn.Linear(64, 64).bfloat16()
    compiled = compiled_with(layer, scheme)
    for rows in (3, 5, 1, 16, 17, 64, 65, 0):
        x = torch.randn(rows, 64).bfloat16()
        assert_close(scheme, compiled(x), expected(scheme, compiled, x, layer.bias), x)
    assert thunder.cache_misses(compiled) <= 4


def why(compiled, *args) -> str:
    """The code of the reason for which the executor refuses the product."""
    with torch.no_grad():
        compiled(*args)
    rows = [row for row in thunder.explain(compiled).rows if row.symbol.endswith("_linear")]
    assert [row.claimed_by for row in rows] == [None]
    return next(r.code for r in rows[0].refusals if r.executor == "onednn")


@needs_blocks
@needs_vnni
def test_why_a_kernel_does_not_take_a_product(monkeypatch):
    assert why(compiled_with(nn.Linear(64, 64), "int4"), torch.randn(2, 64)) == "dtype"
    assert why(compiled_with(nn.Linear(64, 64), "int8"), torch.randn(2, 64)) == "dtype"
    assert why(compiled_with(nn.Linear(20, 64).bfloat16(), "int8"), torch.randn(2, 20).bfloat16()) == "shape"
    assert why(compiled_with(nn.Linear(1, 64), "int8-dynamic"), torch.randn(2, 1)) == "shape"
    monkeypatch.setattr(eight_bits, "LONGEST", 63)
    assert why(compiled_with(nn.Linear(64, 64), "int8-dynamic"), torch.randn(2, 64)) == "shape"
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    assert why(compiled_with(nn.Linear(64, 64), "int8-dynamic"), torch.randn(2, 64)) == "device"


@every_scheme
def test_a_product_that_is_refused_is_that_of_the_dequantised_weight(scheme, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: False)
    layer, x = nn.Linear(64, 64), torch.randn(3, 64)
    compiled = compiled_with(layer, scheme)
    assert torch.equal(compiled(x), F.linear(x, compiled.original_state_dict()["weight"], layer.bias))
    assert calls(compiled) == [f"{scheme.replace('-', '_')}_weight", "linear"]


@needs_vnni
def test_the_packed_form_is_kept_and_a_new_weight_packed_again():
    layer = nn.Linear(64, 64)
    compiled, x = compiled_with(layer, "int8-dynamic"), torch.randn(5, 64)
    for _ in range(2):
        assert_close("int8-dynamic", compiled(x), expected("int8-dynamic", compiled, x, layer.bias), x)
        compiled.load_original_state_dict(nn.Linear(64, 64).state_dict() | {"bias": layer.bias})
    assert_close("int8-dynamic", compiled(x), expected("int8-dynamic", compiled, x, layer.bias), x)
    assert calls(compiled) == ["kept0", "onednn_int8_dynamic"]
    assert thunder.cache_misses(compiled) == 1


@every_scheme
def test_gradients_are_those_of_the_dequantised_weight(scheme):
    layer = nn.Linear(64, 64)
    compiled = compiled_with(layer, scheme)
    with torch.enable_grad():
        x = torch.randn(3, 64, requires_grad=True)
        cotangent = torch.randn(3, 64)
        (gradient,) = torch.autograd.grad(compiled(x), x, cotangent)
    torch.testing.assert_close(gradient, cotangent @ compiled.original_state_dict()["weight"])


def test_the_operators_are_named_after_their_schemes():
    assert tuple(operators.SCHEMES) == SCHEMES
