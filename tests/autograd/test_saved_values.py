"""What may be kept for the backward, and what then becomes of second derivatives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder.autograd.saved_tensors import get_saved_for_backward_tensors
from thunder.base.errors import MissingGradient
from thunder.base.tags import OpTags
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import OperatorExecutor
from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, formulas, vjp
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol


@torchsymbol(id="ltorch.exp_and_its_square", prim=True, eager=lambda a: (a.exp(), a.exp() ** 2))
def exp_and_its_square(a: TensorProxy) -> tuple[TensorProxy, TensorProxy]:
    """Two results, and the gradient of the second is written with the first."""
    return TensorProxy(like=a), TensorProxy(like=a)


@vjp("ltorch.exp_and_its_square")
def _exp_and_its_square(c: VjpCall) -> dict[str, Any]:
    parts = []
    if c.g[0] is not None:
        parts.append(c.g[0] * c.out[0])
    if c.g[1] is not None:
        parts.append(c.g[1] * 2 * c.out[0] * c.out[0])
    return {"a": sum(parts[1:], parts[0])}


@pytest.mark.parametrize("policy", ["none", "min-cut"])
def test_a_result_that_only_the_backward_reads_has_a_gradient_in_second_derivatives(policy: str) -> None:
    jf = thunder.jit(lambda x: exp_and_its_square(x)[1], rematerialization=policy)
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(jf, (x,))
    assert torch.autograd.gradgradcheck(jf, (x,))


def executor_with_residual() -> tuple[OperatorExecutor, Any]:
    """An executor whose forward hands a statistic to its backward, which is written in the torch language."""
    ex = OperatorExecutor("residual_ex")
    scale = ex.register_operator("scale", meta=lambda x: TensorProxy(like=x), fn=lambda x: x * x.abs().sum())
    forward = ex.register_operator(
        "scale_forward",
        meta=lambda x: (TensorProxy(like=x), TensorProxy(shape=(), device=x.device, dtype=x.dtype)),
        fn=lambda x: (x * x.abs().sum(), x.abs().sum()),
    )

    def gradient(x: TensorProxy) -> TensorProxy:
        out, total = forward(x)
        g = get_grad(out)
        put_grad(x, g * total + ltorch.sign(x) * (g * x).sum())
        return out

    ex.register_implementation(scale, scale, grad_transform=gradient)
    return ex, scale


def test_what_an_operator_without_gradient_hands_on_is_kept_and_its_second_derivative_refused() -> None:
    ex, scale = executor_with_residual()
    jf = thunder.jit(lambda x: scale(x), executors=[ex])
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(jf, (x,))
    assert len(get_saved_for_backward_tensors(thunder.last_traces(jf)[-1])) == 2  # x and the statistic
    assert [b.sym.name for b in thunder.last_backward_traces(jf)[-1].bound_symbols].count(
        "scale_forward"
    ) == 0
    with pytest.raises(MissingGradient, match=r"scale.* its gradient rule has none: .*scale_forward"):
        torch.autograd.grad(jf(x).sum(), x, create_graph=True)


def test_what_a_rule_computes_for_itself_is_computed_again() -> None:
    jf = thunder.jit(lambda x: torch.nn.functional.silu(x) * 2, rematerialization="none")
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    out = jf(x)
    assert [t.data_ptr() for t in out.grad_fn.saved_tensors] == [x.data_ptr()]
    assert torch.autograd.gradgradcheck(jf, (x,))


def test_a_result_without_gradient_is_no_beginning_of_a_second_derivative() -> None:
    ex = OperatorExecutor("ignoring_ex")
    both = ex.register_operator(
        "both",
        meta=lambda x: (TensorProxy(like=x), TensorProxy(like=x, requires_grad=False)),
        fn=lambda x: (x * x, 2 * x),
    )

    def gradient(x: TensorProxy) -> tuple[TensorProxy, TensorProxy]:
        square, slope = both(x)
        put_grad(x, get_grad(square) * slope)
        return square, slope

    ex.register_implementation(both, both, grad_transform=gradient)
    jf = thunder.jit(lambda x: both(x)[0], executors=[ex])
    x = torch.randn(3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(jf, (x,))
    with pytest.raises(MissingGradient, match=r"both.* its gradient rule has none: .*both"):
        torch.autograd.grad(jf(x).sum(), x, create_graph=True)


@pytest.mark.parametrize("tag", [OpTags.CHEAP_TO_RECOMPUTE, OpTags.POINTWISE_OP])
def test_a_registered_operator_that_is_cheap_is_recomputed_and_not_saved(tag: Any) -> None:
    ex = OperatorExecutor(f"cheap_ex_{tag.name}")
    runs: list[str] = []

    def cubed(x: torch.Tensor) -> torch.Tensor:
        runs.append("cube")
        return x**3

    saved = {}
    for name, tags in (("cube", [tag]), ("slow_cube", [])):
        cube = ex.register_operator(name, meta=lambda x: TensorProxy(like=x), fn=cubed, tags=tags)
        formulas(cube.id, x=lambda c: c.g * 3 * c.x * c.x)
        jf = thunder.jit(lambda x, w, cube=cube: (cube(x @ w) * cube(x @ w)).sum(), executors=[ex])
        x, w = (torch.randn(4, 4, dtype=torch.float64, requires_grad=True) for _ in range(2))
        out = jf(x, w)
        ran = len(runs)
        out.backward()
        saved[name] = len(get_saved_for_backward_tensors(thunder.last_traces(jf)[-1]))
        assert (len(runs) > ran) == (name == "cube")
        torch.testing.assert_close(x.grad, 6 * (x @ w).detach() ** 5 @ w.detach().T)
    assert saved["cube"] == saved["slow_cube"] - 1


def test_a_call_that_returns_an_argument_does_not_compute_it() -> None:
    """``broadcast_tensors`` returns the second as it is: it is not computed again from itself."""

    def program(x: torch.Tensor) -> torch.Tensor:
        small, large = torch.broadcast_tensors(x.amax(dim=0) > 0, x > 0.5)
        return x.masked_fill(small & large, 2.0)

    x = torch.tensor([[0.1, 0.7], [-2.0, 0.9]], requires_grad=True)
    for fn in (program, thunder.jit(program)):
        fn(x).square().sum().backward()
    (twice,) = (x.grad.clone(),)
    x.grad = None
    program(x).square().sum().backward()
    torch.testing.assert_close(twice, 2 * x.grad)
