"""The way of a kernel into programs as the tutorials walk it: an operator, a faster kernel, a backward.

The kernels compute on the CPU here what Triton's compute on a GPU, behind the same functions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.core.transforms import get_grad, put_grads


class RMSNorm(torch.nn.Module):
    """A module whose author knows nothing of thunder."""

    def __init__(self, size: int, dim: int = -1, eps: float = 1e-6, add_unit_offset: bool = False) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(size))
        self.dim, self.eps, self.add_unit_offset = dim, eps, add_unit_offset

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm_impl(x, self.weight, self.dim, self.eps, self.add_unit_offset)


def rms_norm_impl(
    x: torch.Tensor, weight: torch.Tensor, dim: int, eps: float, add_unit_offset: bool
) -> torch.Tensor:
    normed = x * torch.rsqrt(torch.mean(x * x, dim=dim, keepdim=True) + eps)
    return normed * (1 + weight) if add_unit_offset else normed * weight


def rms_norm_meta(x: Any, weight: Any, dim: int, eps: float, add_unit_offset: bool) -> Any:
    return TensorProxy(like=x)


def forward_impl(X: torch.Tensor, W: torch.Tensor, eps: float) -> Any:
    r = torch.rsqrt(X.square().mean(-1) + eps).flatten()
    return X * r.view(*X.shape[:-1], 1) * W, (r, 4096, 8)


def forward_meta(X: Any, W: Any, eps: float) -> Any:
    rows = 1
    for n in X.shape[:-1]:
        rows *= n
    r = TensorProxy(shape=(rows,), device=X.device, dtype=thunder.dtypes.float32, requires_grad=False)
    return TensorProxy(like=X, requires_grad=True), (r, 4096, 8)


def backward_impl(
    X: torch.Tensor, W: torch.Tensor, r: torch.Tensor, eps: float, BLOCK_SIZE: int, num_warps: int, dY: Any
) -> torch.Tensor:
    r = r.view(*X.shape[:-1], 1)
    normed, h = X * r, dY * W
    return r * (h - normed * (h * normed).mean(-1, keepdim=True))


def backward_meta(X: Any, W: Any, r: Any, eps: float, BLOCK_SIZE: int, num_warps: int, dY: Any) -> Any:
    return TensorProxy(like=dY)


def checker(x: Any, weight: Any, dim: int, eps: float, add_unit_offset: bool) -> bool:
    if dim != -1 or add_unit_offset:
        return False
    if weight.requires_grad:
        return False  # the backward gives the gradient of x only
    return bool(
        x.device.devicetype == thunder.devices.DeviceType.CPU
        and weight.device.devicetype == thunder.devices.DeviceType.CPU
    )


@pytest.fixture
def my_ex() -> Iterator[Any]:
    """The executor, registered while the test runs."""
    ex = thunder.extend.OperatorExecutor("my_ex", version="0.0.1")
    thunder.extend.register_executor(ex)
    yield ex
    thunder.extend.deregister_executor(ex)


@pytest.fixture
def norm_class(my_ex: Any) -> Any:
    """The module's class, which calls the operator while a program is traced."""
    rms_norm = my_ex.register_operator("rms_norm", meta=rms_norm_meta, fn=rms_norm_impl)

    class ThunderizedRMSNorm(RMSNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if thunder.core.interpreter.is_jitting():
                result: torch.Tensor = rms_norm(x, self.weight, self.dim, self.eps, self.add_unit_offset)
                return result
            return super().forward(x)

    return ThunderizedRMSNorm


def add_kernels(my_ex: Any, *, with_gradient: bool = False) -> None:
    """Registers the kernels as an implementation of the operator."""
    rms_norm = my_ex.opmap["rms_norm"]
    forward = my_ex.register_operator("kernel_forward", meta=forward_meta, fn=forward_impl)
    backward = my_ex.register_operator("kernel_backward", meta=backward_meta, fn=backward_impl)

    def to_kernel(x: Any, weight: Any, dim: int, eps: float, add_unit_offset: bool) -> Any:
        res, _ = forward(x, weight, eps)
        return res

    def with_backward(x: Any, weight: Any, dim: int, eps: float, add_unit_offset: bool) -> Any:
        res, (r, block_size, num_warps) = forward(x, weight, eps)
        put_grads((x,), (backward(x, weight, r, eps, block_size, num_warps, get_grad(res)),))
        return res

    my_ex.register_implementation(
        rms_norm,
        checker=checker,
        execution_transform=to_kernel,
        grad_transform=with_backward if with_gradient else None,
    )


def frozen(module: torch.nn.Module) -> torch.nn.Module:
    """The module with weights that want no gradient."""
    return module.requires_grad_(False)


def test_the_executor_prints_as_it_is_imported(my_ex: Any) -> None:
    assert repr(my_ex) == "thunder.extend.OperatorExecutor('my_ex')"
    assert thunder.get_executor("my_ex") is my_ex
    assert my_ex not in thunder.get_default_executors()


def test_an_operator_runs_in_the_program_under_its_name(my_ex: Any, norm_class: Any) -> None:
    module, x = frozen(norm_class(64)), torch.randn(16, 64)
    compiled = thunder.jit(module, executors=(my_ex, *thunder.get_default_executors()))
    assert torch.equal(compiled(x), module(x))
    text = str(thunder.last_traces(compiled)[-1])
    assert "rms_norm(x, t_weight, -1, 1e-06, False)" in text


def test_an_implementation_of_the_operator_takes_over(my_ex: Any, norm_class: Any) -> None:
    add_kernels(my_ex)
    module, x = frozen(torch.nn.Sequential(norm_class(64), norm_class(64))), torch.randn(2, 16, 64)
    compiled = thunder.jit(module, executors=[my_ex])
    torch.testing.assert_close(compiled(x), module(x))
    lines = [
        line for line in str(thunder.last_traces(compiled)[-1]).splitlines() if "kernel_forward(" in line
    ]
    assert [line.split(" = ")[0].strip().endswith("(_, _, _))") for line in lines] == [True, True]


def test_the_checker_leaves_a_weight_that_wants_a_gradient_to_the_operator(
    my_ex: Any, norm_class: Any
) -> None:
    add_kernels(my_ex, with_gradient=True)
    compiled = thunder.jit(norm_class(64), executors=[my_ex])
    with pytest.raises(thunder.MissingGradient, match=r"my_ex\.rms_norm"):
        compiled(torch.randn(16, 64))


def test_a_grad_transform_connects_forward_and_backward(my_ex: Any, norm_class: Any) -> None:
    add_kernels(my_ex, with_gradient=True)
    module, x = frozen(norm_class(64)), torch.randn(16, 64, requires_grad=True)
    compiled = thunder.jit(module, executors=(my_ex, *thunder.get_default_executors()))
    actual, expected = compiled(x), module(x)
    weight = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(actual, x, weight), torch.autograd.grad(expected, x, weight)
    )
    text = str(thunder.last_backward_traces(compiled)[-1])
    assert "= kernel_backward(x, t_weight, " in text
    assert ", 1e-06, 4096, 8, " in text
