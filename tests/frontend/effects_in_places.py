"""A small program for each effect, and for each special part of a program that can contain one."""

from __future__ import annotations

import contextvars
import random
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.extend import run_kernel
from thunder.frontend import places

Body = Callable[[Tensor], Tensor]

VARIABLE = contextvars.ContextVar("VARIABLE", default=2.0)
STATE = SimpleNamespace()


def set_state(factor: float) -> None:
    """Put the state that the programs read at a value."""
    VARIABLE.set(factor)
    random.seed(int(factor))
    torch.manual_seed(int(factor))
    STATE.factor = factor


def reset() -> None:
    """Put the state where it is before each run."""
    parameter = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))
    vars(STATE).update(total=0.0, seen=[], parameter=parameter)
    set_state(2.0)


def state() -> tuple[Any, ...]:
    """Return what the programs have written."""
    return STATE.total, [float(torch.as_tensor(s).detach().sum()) for s in STATE.seen]


# -- effects -------------------------------------------------------------------------------------------------


def writes(x: Tensor) -> Tensor:
    STATE.total += 1.0
    STATE.seen.append(1.0)
    return x * 2


def prints(x: Tensor) -> Tensor:
    print("an effect")
    return x * 2


def makes_text(x: Tensor) -> Tensor:
    print(f"{x.detach().sum():.2f}")
    return x * 2


@thunder.opaque
def _doubled(x: Tensor) -> Tensor:
    return x * 2


def calls_package(x: Tensor) -> Tensor:
    import scipy.optimize._lsap as lsap

    _, columns = lsap.linear_sum_assignment(x.detach())
    return x[:, torch.as_tensor(columns)]


def _kernel(x: Tensor, out: Tensor) -> None:
    with torch.no_grad():
        out.copy_(x * 2)


def launches_kernel(x: Tensor) -> Tensor:
    out = torch.empty_like(x)
    run_kernel("doubled", _kernel, (x.detach(), out), (1,))
    return x + out


def rebinds(x: Tensor) -> Tensor:
    y = x * 2
    y.unsqueeze_(0)
    return y.squeeze(0)


def rebinds_argument(x: Tensor) -> Tensor:
    x.unsqueeze_(0)
    return (x * 2).squeeze(0)


def hooks_leaf(x: Tensor) -> Tensor:
    STATE.parameter.register_hook(lambda g: g * 3).remove()
    return x * 2


def hooks_tensor(x: Tensor) -> Tensor:
    y = x * 2
    if y.requires_grad:
        y.register_hook(STATE.seen.append)
    return y * 3


def computes_gradients(x: Tensor) -> Tensor:
    with torch.enable_grad():
        z = x.detach().requires_grad_()
        (g,) = torch.autograd.grad((z * z).sum(), z)
    return x * g


def opens_dual_level(x: Tensor) -> Tensor:
    with forward_ad.dual_level():
        d = forward_ad.make_dual(x.detach(), torch.ones_like(x))
        tangent = forward_ad.unpack_dual(d * d).tangent
    return x * tangent.detach()


#: for each effect, a function of a matrix
BODIES: dict[places.Effect, Body] = {
    places.COMPUTES: lambda x: x.sin() * 2,
    places.READS: lambda x: x * STATE.factor,
    places.READS_SURROUNDINGS: lambda x: x * VARIABLE.get(),
    places.WRITES: writes,
    places.OUTPUT: prints,
    places.DRAWS: lambda x: x * torch.rand(3, dtype=x.dtype),
    places.DECIDES: lambda x: x * 2 if x.sum() > 0 else x * 3,
    places.MAKES_TEXT: makes_text,
    places.READS_CLOCK: lambda x: x * (time.perf_counter() * 0 + 2),
    places.DRAWS_ON_HOST: lambda x: x * random.random(),
    places.CALLS_OPAQUE: lambda x: x + _doubled(x.detach()),
    places.CALLS_PACKAGE: calls_package,
    places.MAKES_ARRAY: lambda x: x * torch.from_numpy(x.detach().numpy()),
    places.LAUNCHES_KERNEL: launches_kernel,
    places.REBINDS: rebinds,
    places.REBINDS_ARGUMENT: rebinds_argument,
    places.HOOKS_LEAF: hooks_leaf,
    places.HOOKS_TENSOR: hooks_tensor,
    places.READS_NODE: lambda x: x * (2 if (x * 1).grad_fn is None else 3),
    places.COMPUTES_GRADIENTS: computes_gradients,
    places.OPENS_DUAL_LEVEL: opens_dual_level,
    places.CHECKPOINTS: lambda x: checkpoint(torch.sin, x, use_reentrant=False),
}


# -- places --------------------------------------------------------------------------------------------------


def in_a_backward(body: Body) -> Body:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return body(g)

    return lambda x: Doubled.apply(x * 1)  # type: ignore[no-any-return]


def in_a_forward(body: Body) -> Body:
    class Given(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return body(x)

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * 2

    return lambda x: Given.apply(x * 1)  # type: ignore[no-any-return]


def in_a_mapped_function(body: Body) -> Body:
    mapped = torch.vmap(body, randomness="different")
    return lambda x: mapped(torch.stack((x, x + 1)))


def in_a_differentiated_function(body: Body) -> Body:
    gradient = torch.func.grad(lambda x: (body(x) * x).sum())
    return lambda x: gradient(x)


def in_a_region(body: Body) -> Body:
    return lambda x: checkpoint(body, x * 1, use_reentrant=False)


def in_inference_mode(body: Body) -> Body:
    def program(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return body(x * 1)

    return program


class Mode(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def under_a_mode(body: Body) -> Body:
    def program(x: Tensor) -> Tensor:
        with Mode():
            return body(x * 1)

    return program


#: for each special part, the program that has a body there
PARTS: dict[places.Place, Callable[[Body], Body]] = {
    places.Place.BACKWARD: in_a_backward,
    places.Place.FORWARD: in_a_forward,
    places.Place.MAPPED: in_a_mapped_function,
    places.Place.DIFFERENTIATED: in_a_differentiated_function,
    places.Place.REGION: in_a_region,
    places.Place.INFERENCE: in_inference_mode,
    places.Place.MODE: under_a_mode,
}
