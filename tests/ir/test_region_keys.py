"""Structural keys of regions: equal where the same is computed, and different where anything else is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from new_processes import run_python
from thunder.extend import FusionExecutor, Region, structural_key

F = torch.nn.functional


class Collecting(FusionExecutor):
    def __init__(self) -> None:
        super().__init__("collecting")
        self.regions: list[Region] = []
        for id in (
            "sin",
            "cos",
            "add",
            "sub",
            "mul",
            "sum",
            "cat",
            "transpose",
            "nn.functional.gelu",
            "clamp",
        ):
            self.register_supported(f"torch.{id}")

    def fuse(self, region: Region, fusion_counter: int) -> Any:
        self.regions.append(region)
        return thunder.extend.Refusal("collected", "only collected")


def key(program: Callable[..., Any], *inputs: Any, **options: Any) -> str | None:
    executor = Collecting()
    thunder.jit(program, executors=[executor])(*inputs)
    (region,) = executor.regions
    return structural_key(region, **options)


def base(x, y):
    return (torch.sin(x) + y * 2.0).sum(0)


def renamed(first, second):
    left = first.sin()
    right = torch.mul(second, 2.0)
    return torch.sum(torch.add(left, right), dim=0)


X, Y = torch.randn(4, 4), torch.randn(4, 4)

OTHERS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "another operator": (lambda x, y: (torch.cos(x) + y * 2.0).sum(0), (X, Y)),
    "another constant": (lambda x, y: (torch.sin(x) + y * 3.0).sum(0), (X, Y)),
    "another type of a constant": (lambda x, y: (torch.sin(x) + y * 2).sum(0), (X, Y)),
    "another dimension": (lambda x, y: (torch.sin(x) + y * 2.0).sum(1), (X, Y)),
    "a keyword": (lambda x, y: (torch.sin(x) + y * 2.0).sum(0, keepdim=True), (X, Y)),
    "other operands": (lambda x, y: (torch.sin(x) + x * 2.0).sum(0), (X, Y)),
    "swapped operands": (lambda x, y: (y * 2.0 + torch.sin(x)).sum(0), (X, Y)),
    "one more result": (lambda x, y: ((torch.sin(x) + y * 2.0).sum(0), torch.sin(x)), (X, Y)),
    "another dtype": (base, (X.double(), Y.double())),
    "another shape": (base, (X[:, :3], Y[:, :3])),
    "one more call": (lambda x, y: (torch.sin(x) + y * 2.0).sum(0).cos(), (X, Y)),
    "an approximation": (lambda x, y: (F.gelu(x, approximate="tanh") + y * 2.0).sum(0), (X, Y)),
}


def test_names_lines_and_spellings_do_not_count() -> None:
    assert key(base, X, Y) == key(renamed, X, Y) is not None


def test_each_difference_gives_another_key() -> None:
    keys = {name: key(program, *inputs) for name, (program, inputs) in OTHERS.items()}
    keys["the program itself"] = key(base, X, Y)
    assert None not in keys.values()
    assert len(set(keys.values())) == len(keys)


def test_whether_values_require_grad_counts_on_demand() -> None:
    def forward(x, y):
        return base(x, y).detach()

    grad = X.clone().requires_grad_()
    with torch.no_grad():
        assert key(base, X, Y) == key(base, grad, Y)
        assert key(base, X, Y, requires_grad=True) != key(base, grad, Y, requires_grad=True)


def test_zero_and_minus_zero_differ() -> None:
    assert key(lambda x: x.clamp(min=0.0), X) != key(lambda x: x.clamp(min=-0.0), X)


SCRIPT = """
import sys
sys.path[:0] = {paths!r}
from ir.test_region_keys import X, Y, base, key
print(key(base, X, Y))
"""


def test_a_key_is_equal_in_every_process() -> None:
    script = SCRIPT.format(paths=[p for p in sys.path if p])
    done = run_python("-c", script, check=True)
    assert done.stdout.strip() == key(base, X, Y)


class Once(Collecting):
    compiled = 0

    def fuse(self, region: Region, fusion_counter: int) -> Any:
        def compile_region() -> Callable[..., Any]:
            self.compiled += 1
            return lambda x: [x.sin().cos()]

        return self.register_temporary_operation(
            f"Once{fusion_counter}",
            self.compile_once(region, compile_region),
            inputs=region.inputs,
            outputs=region.outputs,
            bsyms=region.bsyms,
        )


def layers(x: torch.Tensor) -> torch.Tensor:
    for _ in range(5):
        x = torch.cumsum(torch.cos(torch.sin(x)), 0)
    return x


def test_equal_regions_are_compiled_once() -> None:
    executor = Once()
    first = thunder.jit(layers, executors=[executor])
    x = torch.randn(3, 3, dtype=torch.float64)
    torch.testing.assert_close(first(x), layers(x))
    assert executor.compiled == 1
    second = thunder.jit(lambda other: layers(other), executors=[executor])
    torch.testing.assert_close(second(x), layers(x))
    assert executor.compiled == 1
    second(x.float())
    assert executor.compiled == 2


@pytest.mark.parametrize("constant", [print, object()])
def test_a_region_with_a_constant_without_text_has_no_key(constant: Any) -> None:
    executor = Collecting()
    thunder.jit(base, executors=[executor])(X, Y)
    (region,) = executor.regions
    call = region.bsyms[0].from_bsym(kwargs={"how": constant})
    assert structural_key(Region.of((call, *region.bsyms[1:]), [p.name for p in region.outputs])) is None


def of_a_function(body: Callable[..., Any]) -> Callable[..., Any]:
    """A program with a function of autograd that has one name, whatever it computes."""

    class Given(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return body(x)

        @staticmethod
        def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
            return g * 2

    return lambda x: Given.apply(x * 1.0).cos()  # type: ignore[no-any-return]


def test_functions_of_autograd_with_one_name_have_the_keys_of_what_they_compute() -> None:
    def key_of(body: Callable[..., Any]) -> list[str | None]:
        executor = Collecting()
        thunder.jit(of_a_function(body), executors=[executor])(torch.randn(4, 4, requires_grad=True))
        assert any("Given" in bsym.sym.name for region in executor.regions for bsym in region.bsyms)
        return [structural_key(region) for region in executor.regions]

    first = key_of(lambda x: x.sin() * 2.0)
    assert first not in (key_of(lambda x: x.sin() * 3.0), key_of(lambda x: x.cos() * 2.0))
    assert key_of(lambda y: y.sin() * 2.0) == first
