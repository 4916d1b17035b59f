"""The names of values do not depend on the executors: traces of one program can be compared by name."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
import thunder.torch as ltorch
from autograd.random_programs import INPUTS, Writer, built
from sweeping import one_in
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import FusionExecutor, OperatorExecutor, evaluate_region
from thunder.ops import prims


class Regions(FusionExecutor):
    """Fuses elementwise calls; a fusion runs them by torch."""

    fusion_name = "region"

    def compile_region(self, region: Any) -> Any:
        return lambda *tensors: evaluate_region(region, tensors)


def regions() -> list[Any]:
    executor = Regions("regions")
    for id in ("torch.mul", "torch.sin", "torch.tanh", "torch.exp", "torch.add", "torch.relu"):
        executor.register_supported(id)
    return [executor]


def run_again(executor: OperatorExecutor, function: Callable[..., Any]) -> None:
    """An executor's own kernel for a function, without a gradient."""
    mine = executor.register_operator(f"mine_{function.__name__}", like=function, fn=function, replace=True)
    executor.register_implementation(function, mine)


def kernels() -> list[Any]:
    executor = OperatorExecutor("kernels")
    for function in (F.gelu, F.layer_norm, torch.tanh, torch.lerp):
        run_again(executor, function)
    return [executor]


def execution_transforms() -> list[Any]:
    executor = OperatorExecutor("expanded")
    executor.register_implementation(
        torch.tanh,
        execution_transform=lambda a: ltorch.sub(ltorch.mul(ltorch.sigmoid(ltorch.mul(a, 2)), 2), 1),
    )
    executor.register_implementation(torch.exp, execution_transform=lambda a: ltorch.add(ltorch.expm1(a), 1))
    return [executor]


def rules() -> list[Any]:
    """Gradient rules that record less and more than torch's."""
    executor = OperatorExecutor("rules")

    def gelu_rule(a: Any, approximate: str = "none") -> Any:
        out = ltorch.gelu(a, approximate=approximate)
        put_grad(a, ltorch.mul(get_grad(out), ltorch.sigmoid(a)))
        return out

    def sin_rule(a: Any) -> Any:
        out = ltorch.sin(a)
        g = get_grad(out)
        put_grad(a, ltorch.add(ltorch.mul(g, ltorch.cos(a)), ltorch.mul(g, ltorch.mul(out, 0.0))))
        return out

    executor.register_implementation(F.gelu, grad_transform=gelu_rule)
    executor.register_implementation(torch.sin, grad_transform=sin_rule)
    return [executor]


EXECUTORS: dict[str, Callable[[], list[Any]]] = {
    "regions": regions,
    "kernels": kernels,
    "execution transforms": execution_transforms,
    "rules": rules,
    "several": lambda: [*rules(), *kernels(), *execution_transforms(), *regions()],
}


def net(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    h = F.layer_norm(x, (4,), w[0], v[:, 0])
    h = torch.sin(h @ w) * h + F.gelu(torch.exp(h))
    h = torch.lerp(h, torch.tanh(h @ v), 0.3) + x * h
    return F.cross_entropy(h, torch.zeros(3, dtype=torch.long)) + F.gelu(h).sum()


def attention(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    q, k = (x @ w).view(1, 3, 2, 2).transpose(1, 2), (x @ v).view(1, 3, 2, 2).transpose(1, 2)
    y = F.scaled_dot_product_attention(q, k, torch.tanh(k), is_causal=True)
    return (y.transpose(1, 2).reshape(3, 4) + F.gelu(x) * torch.sin(x)).softmax(-1).square().sum()


#: what a package has recorded for a call
OF_A_PACKAGE = re.compile(r"_[ep]\d+$")


def traced(program: Callable[..., Any], inputs: list[torch.Tensor], executors: list[Any]) -> list[Any]:
    """The traces of a training step as they run, with the operators in fusions."""
    compiled = thunder.jit(program, executors=[*executors, "torch"])
    results = compiled(*inputs)
    results = [r for r in (results if isinstance(results, tuple) else [results]) if r.grad_fn is not None]
    assert results, "the program computes gradients"
    torch.autograd.backward(results, [torch.ones_like(r) for r in results])
    return [
        trace[-1]
        for trace in (thunder.last_traces(compiled), thunder.last_backward_traces(compiled))
        if trace
    ]


def calls_in(bsyms: Iterable[Any]) -> dict[str, tuple[Any, ...]]:
    """The producer of each value that is computed: its operator, arguments and type."""
    calls: dict[str, tuple[Any, ...]] = {}
    for bsym in bsyms:
        if bsym.sym.is_fusion:
            calls |= calls_in(bsym.subsymbols)
            continue
        if bsym.sym is prims.unpack_sequence:
            continue
        if bsym.sym.executor is not None and len(bsym.subsymbols) == 1:
            (bsym,) = bsym.subsymbols  # the call that was claimed
        arguments = tuple(p.name.removeprefix("bw_") for p in bsym.flat_proxy_args)
        for i, p in enumerate(bsym.flat_proxy_outs):
            calls.setdefault(p.name.removeprefix("bw_"), (bsym.sym.id, i, arguments, p.type_string()))
    return calls


def differing(program: Callable[..., Any], make: Callable[[], list[torch.Tensor]], name: str) -> list[Any]:
    """Values of one call that have other names with torch's executor alone than with others as well.

    A call is the same if its operator and its arguments are: by induction over the program its result has to
    have the same name. Equal calls may occur several times, and some of them be left out.
    """
    ours: dict[str, tuple[Any, ...]] = {}
    theirs: dict[str, tuple[Any, ...]] = {}
    for calls, executors in ((ours, []), (theirs, EXECUTORS[name]())):
        for trace in traced(program, make(), executors):
            calls |= calls_in(trace.bound_symbols)
    assert ours.keys() & theirs.keys()
    theirs = {value: call for value, call in theirs.items() if not OF_A_PACKAGE.search(value)}
    names = {call: {v for v, c in theirs.items() if c == call} for call in theirs.values()}
    wrong: list[Any] = []
    for call in {c for c in ours.values() if c in names}:
        values = {v for v, c in ours.items() if c == call}
        if not values & names[call]:
            wrong.append((call, values, names[call]))
    return wrong + [
        (v, ours[v], theirs[v]) for v in ours.keys() & theirs.keys() if ours[v][-1] != theirs[v][-1]
    ]


def inputs_of_net() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(*shape, requires_grad=True) for shape in ((3, 4), (4, 4), (4, 4))]


@pytest.mark.parametrize("name", EXECUTORS)
@pytest.mark.parametrize("program", [net, attention])
def test_a_backward_has_the_same_names_with_other_executors(program: Callable[..., Any], name: str) -> None:
    assert differing(program, inputs_of_net, name) == []


def inputs_of_random() -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.rand(shape, dtype=torch.float64, requires_grad=True) for shape in INPUTS.values()]


@pytest.mark.parametrize("seed", one_in(20, range(200)))
def test_random_programs_have_the_same_names_with_other_executors(seed: int) -> None:
    fn = built(Writer(random.Random(seed), in_place=False).program(8), f"names_{seed}")
    if not any(r.grad_fn is not None for r in fn(*inputs_of_random())):
        pytest.skip("no result requires grad")
    assert differing(fn, inputs_of_random, list(EXECUTORS)[seed % len(EXECUTORS)]) == []
