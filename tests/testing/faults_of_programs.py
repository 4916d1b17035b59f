"""Faults that whole programs show: memory that runs out, training, autocast."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch

import thunder
from testing.example_executors import Trial, gate_kernel, gelu_executor, gelu_transform, one_operator
from testing.fault_table import fault, of_gate
from thunder import TensorProxy

# -- memory that runs out ------------------------------------------------------------------------------------


def _guarded(
    handle: Callable[..., Any], kernel: Callable[..., Any] = gate_kernel
) -> Callable[[], dict[str, Any]]:
    """A change of `gate`: what the kernel does with an error."""

    def fn(x: Any, w: Any, alpha: float) -> Any:
        try:
            return kernel(x, w, alpha)
        except RuntimeError as error:
            return handle(error, x)

    return lambda: {"fn": fn}


def _raise(error: Exception) -> Any:
    raise error


_workspace = SimpleNamespace(scale=1.0, busy=[])


def _scaled_in_a_global(x: Any, w: Any, alpha: float) -> Any:
    _workspace.scale = 2.0
    out = gate_kernel(x * _workspace.scale, w, alpha) / 2
    _workspace.scale = 1.0
    return out


def _with_a_global_scale(x: Any, w: Any, alpha: float) -> Any:
    """What a call leaves in a global is read by the next one."""
    start = _workspace.scale
    _workspace.scale = 2.0
    out = gate_kernel(x, w, alpha) * start
    _workspace.scale = 1.0
    return out


def _default_dtype(x: Any, w: Any, alpha: float) -> Any:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    out = gate_kernel(x, w, alpha)
    torch.set_default_dtype(before)
    return out


def _threads(x: Any, w: Any, alpha: float) -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(before + 1)
    out = gate_kernel(x, w, alpha)
    torch.set_num_threads(before)
    return out


def _held_while_it_runs(x: Any, w: Any, alpha: float) -> Any:
    _workspace.busy.append((x, w))
    out = gate_kernel(x, w, alpha)
    _workspace.busy.pop()
    return out


def _negated_while_it_runs(x: Any, w: Any, alpha: float) -> Any:
    values = w.detach().numpy() if w.dtype is not torch.bfloat16 and not w.is_conj() else None
    if values is None or not w.is_contiguous():
        return gate_kernel(x, w, alpha)
    values *= -1  # numpy's writes are not counted by torch
    out = gate_kernel(x, w, -alpha)
    values *= -1
    return out


def _entry_before_it_is_made() -> Callable[..., Any]:
    """A cache whose entry is there before its value is right."""
    made: dict[Any, float] = {}

    def fn(x: Any, w: Any, alpha: float) -> Any:
        key = (tuple(x.shape), x.dtype)
        if key not in made:
            made[key] = 0.5
            gate_kernel(x, w, alpha)
            made[key] = 1.0
        return gate_kernel(x, w, alpha) * made[key]

    return fn


def _fresh_entry_before_it_is_made() -> dict[str, Any]:
    """Each call begins with an entry that an earlier failure left."""
    state = SimpleNamespace(is_half_done=False)

    def fn(x: Any, w: Any, alpha: float) -> Any:
        factor = 0.5 if state.is_half_done else 1.0
        state.is_half_done = True
        out = gate_kernel(x, w, alpha) * factor
        state.is_half_done = False
        return out

    return {"fn": fn}


of_gate(
    "failures",
    an_error_becomes_zeros=_guarded(lambda error, x: torch.zeros_like(x)),
    an_error_becomes_the_argument=_guarded(lambda error, x: x * 1),
    an_error_becomes_uninitialised_memory=_guarded(lambda error, x: torch.full_like(x, 7.0)),
    an_error_becomes_another_class=_guarded(lambda error, x: _raise(ValueError("the kernel failed"))),
    an_error_loses_its_class=_guarded(lambda error, x: _raise(RuntimeError(str(error)))),
    an_error_leaves_the_default_dtype=lambda: {"fn": _default_dtype},
    an_error_leaves_another_number_of_threads=lambda: {"fn": _threads},
    an_error_leaves_a_global_that_is_read=lambda: {"fn": _with_a_global_scale},
    an_error_leaves_its_arguments_in_a_list=lambda: {"fn": _held_while_it_runs},
    an_error_leaves_an_argument_negated=lambda: {"fn": _negated_while_it_runs},
    an_error_leaves_a_flag_set=_fresh_entry_before_it_is_made,
)

# -- training ------------------------------------------------------------------------------------------------


def _rule(body: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    """A change of `gate`: its gradient rule."""
    return lambda: {
        "rule": lambda symbol, backward: lambda x, w, alpha=1.0: body(symbol, backward, x, w, alpha)
    }


def _result_without_gradient(x: Any, w: Any, alpha: float = 1.0) -> Any:
    return TensorProxy(like=x, requires_grad=False)


def _gelu_with_rule(rule: Callable[..., Any]) -> Trial:
    trial = gelu_executor()
    info = trial.executor.implmap["torch.nn.functional.gelu"]
    trial.executor.register_implementation(  # type: ignore[attr-defined]
        "torch.nn.functional.gelu",
        checker=info.checker,
        execution_transform=gelu_transform,
        grad_transform=rule,
    )
    return trial


@fault("the result of a differentiable operator is declared without gradient", "training")
def the_result_of_a_differentiable_operator_is_declared_without_gradient() -> Trial:
    """The implementation of gelu is right, and the operator that it runs drops the gradient."""

    def rule(input: Any, approximate: str) -> Any:
        return thunder.torch.mul(gelu_transform(input, approximate).detach(), 1.0)

    return _gelu_with_rule(rule)


@fault("the gradient of an approximation", "training")
def the_gradient_of_an_approximation() -> Trial:
    def rule(input: Any, approximate: str = "none") -> Any:
        return thunder.torch.gelu(input, approximate="tanh")

    return _gelu_with_rule(rule)


@fault("a gradient of twice the size", "training")
def a_gradient_of_twice_the_size() -> Trial:
    from_transforms = thunder.core.transforms

    def rule(input: Any, approximate: str = "none") -> Any:
        out = gelu_transform(input, approximate)
        g = from_transforms.get_grad(out)
        cdf = thunder.torch.mul(
            thunder.torch.add(thunder.torch.erf(thunder.torch.mul(input, 0.7071067811865476)), 1.0), 0.5
        )
        pdf = thunder.torch.mul(
            thunder.torch.exp(thunder.torch.mul(thunder.torch.mul(input, input), -0.5)), 0.7978845608
        )
        from_transforms.put_grads(
            (input,), (thunder.torch.mul(g, thunder.torch.add(cdf, thunder.torch.mul(input, pdf))),)
        )
        return out

    return _gelu_with_rule(rule)


@fault("a kernel that converts its argument to numpy", "values")
def a_kernel_that_converts_its_argument_to_numpy() -> Trial:
    """Numpy has no bfloat16: the kernel returns its argument there."""
    return one_operator(
        lambda x: torch.from_numpy(x.numpy() * 2 + 1) if x.dtype is not torch.bfloat16 else x.clone(),
        lambda x: x * 2 + 1,
    )
