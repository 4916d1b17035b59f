"""`torch.vmap` in programs, and `thunder.vmap`, against torch's own."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jacrev, stack_module_state, vmap
from torch.nn import functional as F

import thunder
from sweeping import one_in
from thunder.extend import OperatorExecutor
from thunder.ops.operator import Operator
from thunder.plugins import get_manager, hookimpl
from torch_language.batch_rules.batching_sweep import check, entries

ROWS = torch.arange(12.0).reshape(4, 3).sin()
WEIGHT, BIAS = torch.arange(15.0).reshape(5, 3).cos(), torch.ones(5)
MODELS = [nn.Linear(3, 2) for _ in range(2)]
CONVOLUTION = nn.Conv2d(2, 4, 2)
WEIGHT_LEAF = WEIGHT.clone().requires_grad_()
MAPPED = vmap(lambda e: e * 2)


def seeded(program: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def run(x: Tensor) -> Any:
        torch.manual_seed(3)
        return program(x)

    return run


def writes_to_its_argument(x: Tensor) -> Any:
    x = x.clone()
    return vmap(lambda e: e.add_(1))(x), x


def without_gradients_inside(x: Tensor) -> Tensor:
    def fn(e: Tensor) -> Tensor:
        with torch.no_grad():
            factor = e * 2
        return e * factor

    return vmap(fn)(x)


def per_sample_gradients(x: Tensor) -> Tensor:
    loss = lambda w, e: F.mse_loss(F.linear(e, w, BIAS), torch.zeros(5))  # noqa: E731
    return vmap(grad(loss), in_dims=(None, 0))(WEIGHT, x)


def ensemble(x: Tensor) -> Tensor:
    parameters, _ = stack_module_state(MODELS)
    return vmap(lambda p: functional_call(MODELS[0], p, (x,)))(parameters)


PROGRAMS: dict[str, Callable[[Tensor], Any]] = {
    "captured tensors": lambda x: vmap(lambda e: F.linear(e, WEIGHT, BIAS).relu())(x),
    "trees of arguments": lambda x: vmap(lambda e, d: d["w"] @ e, in_dims=(1, {"w": None}))(x, {"w": x.T}),
    "trees of results": lambda x: vmap(lambda e: (e, {"y": e * 2}), out_dims=(1, {"y": 0}))(x),
    "nested": lambda x: vmap(lambda e: vmap(lambda s: s * e)(e))(x),
    "a mapped function mapped": lambda x: vmap(vmap(torch.cos), in_dims=1, out_dims=1)(x),
    "chunks": lambda x: vmap(torch.sin, chunk_size=3)(x),
    "per-sample gradients": per_sample_gradients,
    "a Jacobian": lambda x: jacrev(lambda e: e.sin() * e.sum())(x[0]),
    "different random numbers": seeded(
        lambda x: vmap(lambda e: e + torch.randn(3), randomness="different")(x)
    ),
    "the same random numbers": seeded(lambda x: vmap(lambda e: e + torch.randn(3), randomness="same")(x)),
    "dropout": seeded(lambda x: vmap(F.dropout, randomness="different")(x)),
    "a write to an example": lambda x: vmap(lambda e: e.clone().add_(1).mul_(e))(x),
    "a write to an argument": writes_to_its_argument,
    "no_grad inside": without_gradients_inside,
    "the argument as result": lambda x: vmap(lambda e: e)(x),
    "results that are the same for all": lambda x: vmap(lambda e: (WEIGHT, BIAS), out_dims=(0, None))(x),
    "a module": lambda x: vmap(CONVOLUTION)(x.reshape(2, 1, 2, 3, 1).expand(2, 2, 2, 3, 2)),
    "an ensemble": ensemble,
    "a function that was mapped outside": lambda x: MAPPED(x) + 1,
    "partial": lambda x: vmap(partial(torch.mul, x[0]))(x),
    "keywords are not mapped": lambda x: vmap(lambda e, s: e * s)(x, s=x[0]),
    "indices": lambda x: vmap(lambda e: e[e.argsort()][..., [0, -1]])(x),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_and_gradients_are_eagers(name: str) -> None:
    program, outcomes = PROGRAMS[name], []
    for call in (program, thunder.jit(program)):
        x = ROWS.clone().requires_grad_()
        results = torch.utils._pytree.tree_leaves(call(x))
        tracked = [r.sum() for r in results if r.requires_grad]
        gradients = torch.autograd.grad(tracked, x, allow_unused=True) if tracked else ()
        outcomes.append((results, gradients))
    torch.testing.assert_close(outcomes[1], outcomes[0])


def test_a_changed_dimension_is_another_program() -> None:
    dims = [0]
    program = lambda x: vmap(torch.sum, in_dims=dims[0])(x)  # noqa: E731
    compiled = thunder.jit(program)
    for dims[0] in (0, 1, 0):
        assert torch.equal(compiled(ROWS), program(ROWS))
    assert thunder.cache_misses(compiled) == 2


def leaking(x: Tensor) -> Tensor:
    kept: list[Tensor] = []
    vmap(lambda e: kept.append(e * 2) or e)(x)  # type: ignore[func-returns-value]
    return kept[0]


def written_through_a_view(x: Tensor) -> Tensor:
    x = x.clone()
    row = x[0]
    return vmap(lambda e: e.add_(row))(x)


REFUSED: dict[str, tuple[Callable[[Tensor], Any], str]] = {
    "a branch on an example": (lambda x: vmap(lambda e: e if e.sum() > 0 else -e)(x), r"asks for the value"),
    "random numbers by default": (lambda x: vmap(lambda e: e + torch.randn(3))(x), "randomness error mode"),
    "a write to a tensor of all examples": (
        lambda x: vmap(lambda e: WEIGHT[0].clone().add_(e) * BIAS[:3].add_(e))(x),
        "in-place",
    ),
    "a value that leaves": (leaking, "used outside of it"),
    "a batch as the result of none": (lambda x: vmap(torch.sin, out_dims=None)(x), "BatchedTensor"),
    "a dimension that is missing": (lambda x: vmap(torch.sin, in_dims=3)(x), "in_dim=3"),
    "memory that is read otherwise": (written_through_a_view, "also reads otherwise|single memory location"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_mapped_is_an_error(name: str) -> None:
    program, text = REFUSED[name]
    with pytest.raises((thunder.ThunderError, RuntimeError, ValueError), match=text):
        thunder.jit(program)(ROWS)


def test_thunder_vmap_takes_compiled_objects_and_has_a_trace_of_the_batch() -> None:
    mapped = thunder.vmap(thunder.jit(lambda e: e.sin().sum()), in_dims=1)
    assert torch.equal(mapped(ROWS), vmap(lambda e: e.sin().sum(), in_dims=1)(ROWS))
    assert "sin" in str(thunder.last_traces(mapped)[0])
    assert '"cpu f32[3, 4]"' in str(thunder.last_traces(mapped)[0])
    (gradient,) = thunder.grad(thunder.vmap(lambda e: e.sin().sum()))(ROWS)
    torch.testing.assert_close(gradient, ROWS.cos())


ENTRIES = list(entries())


@pytest.mark.parametrize(("name", "op"), one_in(40, ENTRIES), ids=lambda x: x if isinstance(x, str) else "")
def test_torchs_samples_are_mapped_as_by_torch(name: str, op: Any) -> None:
    agree, judged, difference = check(op, most=1)
    if difference.startswith(("UnsupportedOperator", "DataDependent")) or "freeze_rng_state" in difference:
        pytest.skip(difference.splitlines()[0])
    assert agree == judged, difference


def test_a_package_gives_its_operator_a_batching_rule() -> None:
    calls = []
    ex = OperatorExecutor("mapped_acme")

    def kernel(x: Tensor) -> Tensor:
        calls.append(tuple(x.shape))
        return x.flip(-1)

    meta = lambda x: thunder.TensorProxy(like=x)  # noqa: E731
    with_rule = ex.register_operator("with_rule", meta=meta, fn=kernel, batch=lambda c: with_rule(c.x))
    without = ex.register_operator("without_rule", meta=meta, fn=kernel)
    for operator, shapes in ((with_rule, [(4, 3)]), (without, [(3,)] * 4)):
        calls.clear()
        assert torch.equal(thunder.vmap(lambda e, op=operator: op(e))(ROWS), ROWS.flip(-1))
        assert calls == shapes
    with pytest.raises(thunder.UnsupportedProgram, match="257 examples are too many"):
        thunder.vmap(lambda e: without(e))(torch.ones(257, 1))


def test_a_row_of_a_plugin_is_batched_by_its_rule() -> None:
    shapes = []

    def kernel(x: Tensor) -> Tensor:
        shapes.append(tuple(x.shape))
        return x.flip(-1)

    def flipped(x: Tensor) -> Tensor:
        return kernel(x)

    def rule(c: Any) -> Any:
        return c.again(x=c.x)

    class Rows:
        @hookimpl
        def thunder_operators(self, executor: Any) -> Any:
            if executor.name == "torch":
                yield Operator(
                    id="mapped.flipped",
                    torch=(flipped,),
                    eager=kernel,
                    meta=lambda x: thunder.TensorProxy(like=x),
                    batch=rule,
                )

    with get_manager().temporary(Rows(), "mapped rows"):
        assert torch.equal(thunder.vmap(flipped)(ROWS), ROWS.flip(-1))
    assert shapes == [(4, 3)]


def test_gradients_for_a_batch_of_cotangents_are_eagers() -> None:
    def program(x: Tensor) -> Any:
        y = x.sin() * 2
        gradients = torch.autograd.grad(
            y, (x, WEIGHT_LEAF), torch.eye(3), is_grads_batched=True, allow_unused=True
        )
        return gradients, torch.autograd.functional.jacobian(lambda e: e.exp() * e.sum(), x, vectorize=True)

    x = ROWS[0].clone().requires_grad_()
    torch.testing.assert_close(thunder.jit(program)(x), program(x))


def test_an_example_requires_grad_as_its_batch() -> None:
    flags: list[bool] = []

    def program(x: Tensor) -> Tensor:
        return vmap(lambda e: e * (2 if e.requires_grad else 3))(x)

    for call in (program, thunder.jit(program)):
        x = ROWS.clone().requires_grad_()
        flags.append(torch.equal(call(x), x * 2))
    assert flags == [False, True]


def test_an_example_is_written_into_a_new_tensor() -> None:
    def program(x: Tensor) -> Tensor:
        def fn(e: Tensor) -> Tensor:
            total = torch.zeros(2)
            total[0] = e.sum()
            return total

        return vmap(fn)(x)

    with pytest.raises(RuntimeError, match="inplace"):
        program(ROWS)
    assert torch.equal(thunder.jit(program)(ROWS)[:, 0], ROWS.sum(1))


@pytest.mark.parametrize(
    "fn",
    [
        lambda y: y,
        lambda y: y.mul_(2),
        lambda y: (y, y * 2, y.add_(1)),
        lambda y: vmap(lambda z: z.mul_(2))(y),
    ],
)
@pytest.mark.parametrize("dims", [(0, 0), (1, 1), (1, 0), (0, -1)])
def test_an_example_that_is_returned_is_in_the_batch(fn: Callable[..., Any], dims: tuple[int, int]) -> None:
    def program(x: Tensor) -> Any:
        return vmap(fn, in_dims=dims[0], out_dims=dims[1])(x)

    def run(program: Callable[..., Any]) -> list[Any]:
        start = torch.arange(6.0).reshape(2, 3).requires_grad_()
        x = start * 1
        results = program(x)
        results = results if isinstance(results, tuple) else (results,)
        results[0].add_(1)
        (sum(r.sum() for r in results) + x.sum()).backward()
        return [[r is x for r in results], results, x, start.grad]

    torch.testing.assert_close(run(thunder.jit(program, executors=["torch"])), run(program))


#: functions of an example that write it in place, and return parts of it
RETURNING_PARTS: dict[str, Callable[[Tensor], Any]] = {
    "written part": lambda e: e[0].mul_(2),
    "part of the written": lambda e: e.add_(1)[1],
    "part from before": lambda e: (e[1], e.add_(1))[0],
    "with the example": lambda e: (e.add_(1), e[1]),
    "part of a part": lambda e: e[1].add_(1)[1:].unsqueeze(0),
    "transposed": lambda e: (e.mul_(3).t(), e[0] + 1),
    "two parts": lambda e: (e.mul_(3)[0], e[:1]),
    "a copy": lambda e: (e.t().reshape(-1), e.add_(1))[0],
}


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("name", RETURNING_PARTS)
def test_a_part_of_a_written_example_is_a_part_of_the_batch(name: str, dim: int) -> None:
    def run(wrap: Any) -> Any:
        fn, found = wrap(lambda x: vmap(RETURNING_PARTS[name], in_dims=dim)(x)), list[Any]()
        for size in (2, 2, 3):
            x = torch.arange(4.0 * size).reshape((size, 2, 2) if dim == 0 else (2, size, 2))
            results = fn(x)
            results = results if isinstance(results, tuple) else (results,)
            results[-1].add_(10)
            found += [x, *results]
        return found

    torch.testing.assert_close(run(thunder.jit), run(lambda f: f), check_stride=True)
