"""Regions of autocast in programs and around them: dtypes, gradients, and what is guarded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from thunder.base.pytree import tree_iter

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*autocast.*:FutureWarning", "ignore:.*autocast.*:DeprecationWarning"
)

Setting = tuple[str, bool, torch.dtype]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    yield
    settle()


def settle(*settings: Setting, keeps_casts: bool = True) -> None:
    """Sets autocast by torch's setters, from its defaults."""
    for kind, enabled, dtype in (
        ("cpu", False, torch.bfloat16),
        ("cuda", False, torch.float16),
        *settings,
    ):
        torch.set_autocast_enabled(kind, enabled)
        torch.set_autocast_dtype(kind, dtype)
    torch.set_autocast_cache_enabled(keeps_casts)
    torch.clear_autocast_cache()


#: states around a call, each of which must have a program of its own where the program depends on it
STATES: list[Callable[[], None]] = [
    settle,
    lambda: settle(("cpu", True, torch.bfloat16)),
    lambda: settle(("cpu", True, torch.float16)),
    lambda: settle(("cpu", False, torch.float16)),
    lambda: settle(("cuda", True, torch.float16)),
    lambda: settle(("cpu", True, torch.bfloat16), keeps_casts=False),
    lambda: settle(keeps_casts=False),
]


def asks(x: torch.Tensor) -> Any:
    return (
        x @ x,
        torch.is_autocast_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
    )


def branches(x: torch.Tensor) -> Any:
    return x @ x if torch.is_autocast_enabled("cpu") else x.double()


def enters(x: torch.Tensor) -> Any:
    with torch.autocast("cpu"):
        return x @ x, x @ x


def nests(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.float16):
        y = x @ x
        with torch.autocast("cpu", enabled=False):
            z = x @ x
            with torch.amp.autocast("cpu", torch.bfloat16):
                w, inside = (x * 1) @ (x * 1), torch.is_autocast_cpu_enabled()
        v = y.float() @ z
    return y, z, w, v, x @ x, inside, torch.get_autocast_cpu_dtype()


@torch.autocast("cpu", torch.bfloat16)
def _decorated(x: torch.Tensor) -> torch.Tensor:
    return x @ x


def calls_a_decorated_function(x: torch.Tensor) -> Any:
    return _decorated(x), x @ x


@torch.amp.autocast("cpu", dtype=torch.float16)
def is_decorated(x: torch.Tensor) -> Any:
    return x @ x


def decorates(x: torch.Tensor) -> Any:
    @torch.cpu.amp.autocast(dtype=torch.bfloat16)
    def square(y: torch.Tensor) -> torch.Tensor:
        return y @ y

    return square(x)


def keeps_no_casts(x: torch.Tensor) -> Any:
    with torch.amp.autocast("cpu", cache_enabled=False):
        return x @ x, torch.is_autocast_cache_enabled()


class _Square(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x @ x

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return g @ x.to(g.dtype)


class _WideSquare(_Square):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x @ x


def has_functions_of_its_own(x: torch.Tensor) -> Any:
    return _Square.apply(x), _WideSquare.apply(x.sin())


def sets(x: torch.Tensor) -> Any:
    before = torch.is_autocast_enabled("cpu")
    torch.set_autocast_enabled("cpu", True)
    y = x @ x
    torch.set_autocast_enabled("cpu", before)
    return y


def checkpoints(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        return checkpoint(lambda y: (y @ y).sin(), x, use_reentrant=False)


def casts_a_value_twice(x: torch.Tensor) -> Any:
    y = x.sin()
    with torch.autocast("cpu", torch.bfloat16):
        return y @ y, y @ x, x @ y


def casts_without_gradients_first(x: torch.Tensor) -> Any:
    with torch.autocast("cpu", torch.bfloat16):
        with torch.no_grad():
            y = x @ x
        return y, x @ x


PROGRAMS = [
    casts_without_gradients_first,
    asks,
    branches,
    enters,
    nests,
    calls_a_decorated_function,
    is_decorated,
    decorates,
    keeps_no_casts,
    has_functions_of_its_own,
    sets,
    checkpoints,
    casts_a_value_twice,
]


def outcome(
    program: Callable[..., Any], data: torch.Tensor, state: Callable[[], None], grad: bool
) -> list[Any]:
    """The results of a call in a state, the state after it, and the gradient."""
    x = data.clone().requires_grad_(grad)
    state()
    results = list(tree_iter(program(x)))
    found = [
        *results,
        *((k, torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in ("cpu", "cuda")),
    ]
    settle()
    if grad:
        sum(r.float().sum() for r in results if isinstance(r, torch.Tensor)).backward()  # type: ignore[union-attr]
        found.append(x.grad)
    return found


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_each_state_around_a_call_gives_eagers_results_and_gradients(
    program: Callable[..., Any], grad: bool
) -> None:
    data = torch.randn(4, 4)
    compiled = thunder.jit(program)
    for state in STATES + STATES:
        expected = outcome(program, data, state, grad)
        found = outcome(compiled, data, state, grad)
        for a, b in zip(found, expected, strict=True):
            if isinstance(b, torch.Tensor):  # cotangents in bfloat16 may be added in another order
                allowed = 2.0**-7 if grad and b is expected[-1] else 0.0
                torch.testing.assert_close(a, b, rtol=allowed, atol=allowed)
            else:
                assert a == b
    assert thunder.cache_misses(compiled) <= len(STATES)


def test_a_program_that_asks_nothing_has_one_entry_while_autocast_is_off() -> None:
    compiled = thunder.jit(lambda x: x @ x)
    for state in (settle, lambda: settle(("cpu", False, torch.float16)), lambda: settle(keeps_casts=False)):
        state()
        compiled(torch.ones(2, 2))
    assert thunder.cache_misses(compiled) == 1


def test_a_weight_that_changed_within_a_region_is_cast_again_by_the_next_call() -> None:
    """Eager keeps its cast until the outermost region ends, whatever is written to the weight since."""
    w = torch.ones(2, 2, requires_grad=True)
    results = []
    for program in (lambda w: w @ w, thunder.jit(lambda w: w @ w)):
        with torch.autocast("cpu", torch.bfloat16):
            before = program(w)
            with torch.no_grad():
                w.mul_(2)
            results.append(bool((program(w) == before).all()))
    assert results == [True, False]


def test_a_backward_that_runs_under_autocast_has_the_dtypes_of_its_forward() -> None:
    """Eager casts in a backward that runs under autocast; the compiled one was recorded without."""
    x = torch.randn(4, 4)

    def gradient(program: Callable[..., Any]) -> torch.Tensor:
        leaf = x.clone().requires_grad_()
        out = program(leaf)
        with torch.autocast("cpu", torch.bfloat16):
            out.sum().backward()
        assert leaf.grad is not None
        return leaf.grad

    def program(x: torch.Tensor) -> torch.Tensor:
        return (x @ x).sin()

    exact = torch.autograd.functional.vjp(program, x, torch.ones(4, 4))[1]
    torch.testing.assert_close(gradient(thunder.jit(program)), exact)
    assert not torch.allclose(gradient(program), exact)


def test_a_program_that_switches_the_cache_off_leaves_it_off_in_each_call():
    def program(x):
        torch.set_autocast_cache_enabled(False)
        return x * 2

    compiled = thunder.jit(program)
    try:
        for _ in range(2):
            torch.set_autocast_cache_enabled(True)
            compiled(torch.ones(2))
            assert not torch.is_autocast_cache_enabled()
    finally:
        torch.set_autocast_cache_enabled(True)
