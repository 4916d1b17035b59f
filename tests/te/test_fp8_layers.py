"""Linear layers in FP8 by the reference: numbers, gradients, what is saved, what guards them."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import linear

import thunder
from thunder.executors.transformer_engineex import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    Format,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    TransformerEngineTransform,
    autocast,
    fp8_reference_ex,
)

#: recipe → the largest relative errors of a rounded element, forward and backward: half of the last place
RECIPES = {
    Float8CurrentScaling(): (2**-4, 2**-3),
    Float8CurrentScaling(fp8_format=Format.E4M3, use_power_2_scales=True): (2**-4, 2**-4),
    Float8BlockScaling(): (2**-4, 2**-4),
    Float8BlockScaling(use_f32_scales=True, fp8_format=Format.HYBRID): (2**-4, 2**-3),
    MXFP8BlockScaling(): (2**-4, 2**-4),
}


def arguments(rows: int = 32, size: int = 64, out: int = 160) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(0)
    x, w, b = torch.randn(2, rows, size), torch.randn(out, size), torch.randn(out)
    return tuple(t.requires_grad_() for t in (x, w, b))


def bound(a: torch.Tensor, b: torch.Tensor, errors: tuple[float, float], least: float) -> torch.Tensor:
    """The largest error of a @ b whose elements have a relative error, or one of `least` of the maximum."""
    (da, db) = (e * t.abs() + least * t.abs().max() for e, t in zip(errors, (a, b), strict=True))
    return da @ b.abs() + a.abs() @ db + da @ db


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda r: f"{type(r).__name__}-{r.fp8_format.name}")
def test_results_and_gradients_are_within_the_bound_of_the_recipe(recipe):
    x, w, b = arguments()
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    with autocast(recipe=recipe):
        y = compiled(x, w, b)
    g = torch.randn_like(y)
    dx, dw, db = torch.autograd.grad(y, (x, w, b), g)
    forward, backward = RECIPES[recipe]
    least = 2.0**-15  # an element below the smallest normal number of E4M3, of which the largest is 448
    X, G, W = (t.detach().double().flatten(0, -2) for t in (x, g, w))
    with torch.no_grad():
        errors = (y.flatten(0, 1) - X @ W.t() - b).abs()
        assert (errors <= bound(X, W.t(), (forward, forward), least) + 1e-4).all()
        assert ((dx.flatten(0, 1) - G @ W).abs() <= bound(G, W, (backward, forward), least) + 1e-4).all()
        assert ((dw - G.t() @ X).abs() <= bound(G.t(), X, (backward, forward), least) + 1e-4).all()
    torch.testing.assert_close(db, g.sum((0, 1)))
    assert not torch.equal(y, linear(x, w, b))


def test_a_second_backward_gives_the_gradients_of_the_first():
    x, w, b = arguments()
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    y = compiled(x, w, b)
    g = torch.randn_like(y)
    first = torch.autograd.grad(y, (x, w, b), g, retain_graph=True)
    second = torch.autograd.grad(y, (x, w, b), g)
    assert all(map(torch.equal, first, second))
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        torch.autograd.grad(y, (x, w, b), g)


def test_a_second_derivative_is_refused():
    x, w, b = arguments()
    y = thunder.jit(linear, executors=[fp8_reference_ex])(x, w, b)
    with pytest.raises(thunder.MissingGradient, match="second derivative"):
        torch.autograd.grad(y.square().sum(), x, create_graph=True)


def test_the_trace_saves_quantised_operands_as_plain_tensors():
    x, w, b = arguments()
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    compiled(x, w, b)
    saved = thunder.core.vjp_utils.get_saved_for_backward_tensors(thunder.last_traces(compiled)[-1])
    assert sorted(p.type_string() for p in saved) == [
        "cpu f32[1]",
        "cpu f32[1]",
        "cpu f8_e4m3fn[160, 64]",
        "cpu f8_e4m3fn[64, 64]",
    ]


def test_the_recipe_is_guarded():
    x, w, _ = arguments()
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    plain = compiled(x, w)
    with autocast(recipe=MXFP8BlockScaling()):
        scaled = compiled(x, w)
        assert torch.equal(scaled, compiled(x, w))
    with autocast(False):
        assert torch.equal(compiled(x, w), linear(x, w))
    assert torch.equal(plain, compiled(x, w))
    assert not torch.equal(plain, scaled)
    assert thunder.cache_misses(compiled) == 3
    (reason, _) = thunder.last_recompile_reasons(compiled)
    assert "thunder_te.autocast" in str(reason)


def test_a_compiled_program_cannot_open_autocast():
    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with autocast(recipe=MXFP8BlockScaling()):
            return linear(x, w)

    x, w, _ = arguments()
    with pytest.raises(thunder.UnsupportedProgram, match="around the call"):
        thunder.jit(program, executors=[fp8_reference_ex])(x, w)


@pytest.mark.parametrize(
    ("recipe", "shapes", "message"),
    [
        (None, ((32, 60), (16, 60)), "multiples of 16 (in=60)"),
        (None, ((8, 64), (16, 64)), "multiples of 16 (rows=8)"),
        (MXFP8BlockScaling(), ((32, 64), (16, 64)), "multiples of 32 (out=16)"),
        (NVFP4BlockScaling(), ((32, 64), (16, 64)), "multiples of 32 (out=16)"),
        (NVFP4BlockScaling(False, True), ((32, 64), (16, 64)), "multiples of 32 (out=16)"),
        (None, ((64,), (16, 64)), "not a product of matrices"),
    ],
)
def test_what_is_not_claimed_runs_as_eager_and_has_its_reason(recipe, shapes, message):
    x, w = (torch.randn(shape) for shape in shapes)
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    with autocast(recipe=recipe):
        assert torch.equal(compiled(x, w), linear(x, w))
    assert message in str(thunder.explain(compiled))


def test_float64_and_mixed_dtypes_are_not_claimed():
    x, w = torch.randn(16, 16).double(), torch.randn(16, 16).double()
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    assert torch.equal(compiled(x, w), linear(x, w))
    assert "not float32, bfloat16 or float16" in str(thunder.explain(compiled))


def test_delayed_scaling_without_a_place_for_its_state_is_an_error():
    x, w, _ = arguments()
    with autocast(recipe=DelayedScaling()), pytest.raises(thunder.UserError, match="no place for them"):
        thunder.jit(linear, executors=[fp8_reference_ex])(x, w)
    with pytest.raises(thunder.UserError, match="is not one"):
        thunder.jit(linear, transforms=[TransformerEngineTransform()])


def test_without_the_plugin_nothing_is_claimed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("thunder_te.claims._is_registered", lambda: False)
    x, w, _ = arguments()
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    assert torch.equal(compiled(x, w), linear(x, w))


def test_frozen_weights_get_no_gradient_product():
    x, w, b = arguments()
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    compiled(x, w.detach(), b.detach()).sum().backward()
    names = [bsym.sym.name for bsym in thunder.last_backward_traces(compiled)[-1].bound_symbols]
    assert names.count("fp8_gemm") == 1
