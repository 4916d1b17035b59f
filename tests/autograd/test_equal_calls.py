"""The step of a call is copied for equal calls (Note [Equal calls]): as if the formulas of each had run."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

import thunder
from autograd.random_programs import Writer, built
from frontend.equal_modules.equal_blocks import CHANGES, PROGRAMS, stack
from frontend.equal_modules.test_equal_modules import assert_same, inputs, outcome
from models.shrunken import NotBuilt, build, families
from sweeping import one_in
from thunder.autograd import formula_steps
from thunder.autograd.step_copies import StepTemplate
from thunder.base.errors import NeverCalled, ThunderError
from thunder.extend import OperatorExecutor
from thunder.ir.gradient_declarations import Formulas, declare_gradient, row_gradient
from thunder.ir.trace_context import get_tracectx


@pytest.fixture
def run_all(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function after which the formulas of every call run."""
    return lambda: monkeypatch.setattr(StepTemplate, "of", lambda *arguments: None)


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The operators of the calls whose formulas have run."""
    ran: list[str] = []
    step_of_formulas = formula_steps.step_of_formulas

    def counted(trace: Any, gradient: Any, bsym: Any, names: Any) -> Any:
        ran.append(bsym.sym.id)
        return step_of_formulas(trace, gradient, bsym, names)

    monkeypatch.setattr(formula_steps, "step_of_formulas", counted)
    return ran


def texts_of(fn: Any) -> list[str]:
    """Return the texts of all traces that were compiled last, without times; of an error there are none."""
    try:
        traces = [*thunder.last_traces(fn), *thunder.last_backward_traces(fn)]
    except NeverCalled:
        return []
    return [re.sub(r"\(took [^)]*\)", "", str(trace)) for trace in traces]


def gradients(fn: Any, *tensors: Tensor) -> list[Tensor | None]:
    """Return what the function returns of these tensors, and the gradients of all of them."""
    leaves = [x.clone().requires_grad_() for x in tensors]
    result = fn(*leaves)
    return [result.detach(), *torch.autograd.grad(result.sum(), leaves, allow_unused=True)]


def assert_as_eager_and_as_run(fn: Any, run_all: Callable[[], None], *tensors: Tensor) -> list[str]:
    """Return the texts of the traces."""
    copied, run = thunder.jit(fn), thunder.jit(fn)
    torch.testing.assert_close(gradients(copied, *tensors), gradients(fn, *tensors))
    run_all()
    gradients(run, *tensors)
    assert texts_of(copied) == texts_of(run) != []
    return texts_of(copied)


def test_formulas_run_once_for_equal_calls(runs: list[str]):
    thunder.jit(stack(2))(inputs())
    few = len(runs)
    thunder.jit(stack(8))(inputs())
    assert 0 < len(runs) - few <= few


@pytest.mark.parametrize("name", ["nothing", *one_in(8, [name for name in CHANGES if name != "nothing"])])
def test_blocks_have_the_traces_of_formulas_that_run(name: str, run_all: Callable[[], None]):
    models = [stack() for _ in range(3)]
    for model in models:
        CHANGES[name](model, model.blocks[1])
    copied, run = thunder.jit(models[0]), thunder.jit(models[1])
    results = [outcome(copied, models[0]), outcome(models[2], models[2])]
    run_all()
    results.append(outcome(run, models[1]))
    for found in results[1:]:
        assert_same(results[0], found)
    assert texts_of(copied) == texts_of(run)


@pytest.mark.parametrize("name", one_in(2, PROGRAMS))
def test_programs_have_the_traces_of_formulas_that_run(name: str, run_all: Callable[[], None]):
    models = [stack() for _ in range(3)]
    programs = [PROGRAMS[name](model) for model in models]
    copied, run = map(thunder.jit, programs[:2])
    assert_same(outcome(copied, models[0]), outcome(programs[2], models[2]))
    run_all()
    outcome(run, models[1])
    assert texts_of(copied) == texts_of(run)


@pytest.mark.parametrize("family", one_in(180, families(), start=27))
def test_families_have_the_traces_of_formulas_that_run(family: str, run_all: Callable[[], None]):
    try:
        built_model = build(family)
    except NotBuilt as error:
        pytest.skip(f"eager runs no such model: {error}")

    def texts() -> list[str]:
        model = copy.deepcopy(built_model.model.train())  # a call may write buffers, which programs read
        jitted: Any = thunder.jit(model, executors=[])
        torch.manual_seed(0)
        numpy.random.seed(0)  # masks of audio are drawn by NumPy
        try:
            jitted(**built_model.arguments)
        except (ThunderError, ValueError, AttributeError, TypeError) as error:  # the model's own too
            return [str(error).splitlines()[0]]
        return texts_of(jitted)

    found = texts()
    run_all()
    assert found == texts()


def test_one_tensor_as_both_arguments_is_not_two(run_all: Callable[[], None]):
    a, b = inputs(), inputs() + 1
    assert_as_eager_and_as_run(lambda x, y: x * y + x * x + y * y + y * x, run_all, a, b)


def test_numbers_of_other_types_and_values_are_not_equal(run_all: Callable[[], None]):
    def f(x: Tensor) -> Tensor:
        return x * 2 + x * 2.0 + x * True + x * 1 + x**2 + x**2.0 + x * 0.0 + x * -0.0

    assert_as_eager_and_as_run(f, run_all, inputs())


def test_what_requires_no_gradient_is_not_equal(run_all: Callable[[], None]):
    def f(x: Tensor, y: Tensor) -> Tensor:
        a, b = x * 1, y * 1
        return a * b + a * (constant * 1) + a.detach() * b + a * b.detach() + a * b[:1] + a[:1] * b

    constant = inputs() + 2
    assert_as_eager_and_as_run(f, run_all, inputs(), inputs() + 1)


def test_results_without_cotangent_are_not_equal(run_all: Callable[[], None]):
    def f(x: Tensor) -> Tensor:
        first = torch.split(x, 2, 1)
        second = torch.split(x * 2, 2, 1)
        third = torch.split(x * 3, 2, 1)
        return first[0] + second[1] + third[0] * third[1]

    assert_as_eager_and_as_run(f, run_all, inputs())


def test_names_that_are_taken_are_passed_over(run_all: Callable[[], None]):
    def f(x: Tensor) -> Tensor:
        a = x * 2
        c = a * 2
        b = c * 2
        b_0 = b * 2
        b_1 = b_0 * 2
        return b_1.sin()

    *_, text = assert_as_eager_and_as_run(f, run_all, inputs())
    assert "b_0_1 = " in text


def test_draws_are_those_of_formulas_that_run(run_all: Callable[[], None]):
    def f(x: Tensor) -> Tensor:
        for _ in range(3):
            x = torch.nn.functional.dropout(torch.nn.functional.rrelu(x, training=True), 0.5)
        return x

    copied, run = thunder.jit(f), thunder.jit(f)
    results = []
    for fn in (f, copied, run):
        torch.manual_seed(1)
        results.append(gradients(fn, inputs()))
        run_all()
    torch.testing.assert_close(results[1], results[0])
    assert texts_of(copied) == texts_of(run)


def test_second_derivatives_read_the_statements_of_copies(run_all: Callable[[], None]):
    def f(x: Tensor) -> Tensor:
        for _ in range(3):
            x = (x * x).sin()
        return x

    def second(fn: Any) -> Tensor:
        x = inputs().double().requires_grad_()
        (first,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        return torch.autograd.grad(first.sum(), x)[0]

    torch.testing.assert_close(second(thunder.jit(f)), second(f))


@pytest.mark.parametrize("seed", range(6))
def test_random_programs_have_the_traces_of_formulas_that_run(seed: int, run_all: Callable[[], None]):
    fn = built(Writer(random.Random(seed), False).program(12), f"equal calls {seed}")
    arguments = [torch.rand(shape, dtype=torch.float64) for shape in ((2, 3), (3, 2), (3,), ())]

    def texts() -> list[str]:
        jitted: Any = thunder.jit(fn)
        torch.manual_seed(0)
        try:
            jitted(*[x.clone().requires_grad_() for x in arguments])
        except RuntimeError as error:
            return [str(error).splitlines()[0]]
        return texts_of(jitted)

    found = texts()
    run_all()
    assert found == texts()


def test_formulas_of_a_package_run_for_each_call():
    ran = []
    acme = OperatorExecutor("acme_equal_calls")

    def gradient(call: Any) -> Any:
        ran.append(call)
        return call.g * 3

    triple = acme.register_operator(
        "triple", like=lambda x: thunder.TensorProxy(like=x), fn=lambda x: x * 3, vjp={"x": gradient}
    )
    jitted = thunder.jit(lambda x: triple(triple(triple(x))), executors=[acme])
    x = inputs().requires_grad_()
    jitted(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.full_like(x, 27))
    assert len(ran) == 3


def test_formulas_that_look_at_the_program_run_for_each_call():
    """They may find other statements before each call."""
    declared = row_gradient("torch.sin")
    found: list[int] = []

    def looks(c: Any) -> Any:
        trace = get_tracectx()
        assert trace is not None
        found.append(sum(map(len, trace.scopes)))
        return c.g * c.input.cos()

    looks.__module__ = "thunder.torch.gradients.unary"
    declare_gradient("torch.sin", Formulas({"input": looks}))
    try:
        jitted = thunder.jit(lambda x: x.sin().sin().sin())
        jitted(inputs().requires_grad_())
    finally:
        declare_gradient("torch.sin", declared)
    assert len(found) == 3
