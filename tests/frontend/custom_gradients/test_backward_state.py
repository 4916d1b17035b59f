"""What the backward of a ``torch.autograd.Function`` reads, writes and draws is as of the time when it runs.

Each program is run by eager and compiled, with its state changed in between; values, gradients, effects and
their order must agree.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint

import thunder

FACTOR = 3.0
LOG: list[float] = []
CONFIG = {"k": 2.0}
SCALE = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64)
MODEL = torch.nn.Linear(3, 3, bias=False).double().requires_grad_(False)


class Settings:
    k = 2.0

    def __init__(self):
        self.factor, self.count = 1.5, 0


class Slotted:
    __slots__ = ("factor",)


SETTINGS, SLOTTED = Settings(), Slotted()


def squared(ctx, x):
    ctx.save_for_backward(x)
    return x * x


def keeps_settings(ctx, x):
    ctx.config, ctx.settings = CONFIG, SETTINGS
    return x * x


def keeps_a_list(ctx, x):
    ctx.sizes, ctx.inside = [1, 2.0], {"mean": x.mean(), "again": (x, None)}
    return x * x


def default_of(g, factor=SETTINGS):
    return g * factor.factor


def printing(ctx, g):
    print("backward")
    return g * 2


def warning(ctx, g):
    warnings.warn("backward", stacklevel=1)
    return g * 2


def appending(ctx, g):
    LOG.append(FACTOR)
    return g * len(LOG)


def counting(ctx, g):
    SETTINGS.count += 1
    return g * SETTINGS.count


def counting_in_ctx(ctx, g):
    ctx.count = getattr(ctx, "count", 0) + 1
    return g * ctx.count


def with_its_list(ctx, g):
    ctx.sizes.append(1.0)
    x, _ = ctx.inside["again"]
    return g * sum(ctx.sizes) * ctx.inside["mean"] * x


def branching(ctx, g):
    (x,) = ctx.saved_tensors
    return g * 2 * x if x.sum().item() > 0 else g * 3


#: what a backward does → the forward and the backward
FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "a variable": (squared, lambda ctx, g: g * FACTOR * ctx.saved_tensors[0]),
    "an item": (squared, lambda ctx, g: g * CONFIG["k"]),
    "a tensor": (squared, lambda ctx, g: g * SCALE),
    "an attribute": (squared, lambda ctx, g: g * SETTINGS.factor),
    "a slot": (squared, lambda ctx, g: g * SLOTTED.factor),
    "a class attribute": (squared, lambda ctx, g: g * Settings.k),
    "a default": (squared, lambda ctx, g: default_of(g)),
    "a parameter": (squared, lambda ctx, g: g * MODEL.weight.sum()),
    "the training mode": (squared, lambda ctx, g: g * (2 if MODEL.training else 5)),
    "a dict of ctx": (keeps_settings, lambda ctx, g: g * ctx.config["k"]),
    "an object of ctx": (keeps_settings, lambda ctx, g: g * ctx.settings.factor),
    "what the forward made": (keeps_a_list, with_its_list),
    "the grad mode": (squared, lambda ctx, g: g * (2 if torch.is_grad_enabled() else 3)),
    "what needs a gradient": (squared, lambda ctx, g: g * (2 if ctx.saved_tensors[0].requires_grad else 3)),
    "a list of values": (squared, lambda ctx, g: g * sum(ctx.saved_tensors[0].tolist())),
    "strides": (squared, lambda ctx, g: g * (2 if g.contiguous().stride(0) else 3)),
    "the environment": (squared, lambda ctx, g: g * float(os.environ["BACKWARD_STATE"])),
    "the name of ctx": (squared, lambda ctx, g: g * len(type(ctx).__name__)),
    "the values of a tensor": (squared, branching),
    "random numbers": (squared, lambda ctx, g: g * torch.rand_like(g)),
    "prints": (squared, printing),
    "warns": (squared, warning),
    "appends": (squared, appending),
    "counts": (squared, counting),
    "counts in ctx": (squared, counting_in_ctx),
}


def program_of(forward, backward):
    class Given(Function):
        pass

    Given.forward, Given.backward = staticmethod(forward), staticmethod(backward)
    return lambda x: Given.apply(x.sin()) * 2


def set_state(factor: float) -> None:
    global FACTOR
    FACTOR, CONFIG["k"], SETTINGS.factor = factor, factor + 1, factor / 2
    Settings.k, SLOTTED.factor = factor + 2, factor + 3
    os.environ["BACKWARD_STATE"] = str(factor)
    LOG.append(-factor)
    MODEL.train(factor < 3)
    with torch.no_grad():
        SCALE.fill_(factor + 4)
        MODEL.weight.fill_(factor + 5)


def first(result, x):
    result.sum().backward()
    return [x.grad]


def twice(result, x):
    result.sum().backward(retain_graph=True)
    set_state(5.0)
    result.sum().backward()
    return [x.grad]


def second(result, x):
    (gradient,) = torch.autograd.grad(result.sum(), x, create_graph=True)
    SETTINGS.factor = CONFIG["k"] = 6.0
    more = torch.autograd.grad((gradient**2).sum(), x, allow_unused=True) if gradient.requires_grad else ()
    return [gradient, *more]


def not_at_all(result, x):
    return []


CALLERS = (first, twice, second, not_at_all)


def observed(fn, caller) -> tuple[list[Any], Any]:
    """Gradients of two calls, with the state changed after each forward; and what was printed and written."""
    LOG.clear()
    SETTINGS.count = 0
    torch.manual_seed(0)
    tensors: list[Any] = []
    with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for call in range(2):
            set_state(1.0 + call)
            x = torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64, requires_grad=True)
            result = fn(x)
            set_state(3.0 + call)
            tensors += [result, *caller(result, x)]
            out.write("called\n")
    return tensors, (out.getvalue(), [str(w.message) for w in caught], list(LOG), SETTINGS.count)


@pytest.mark.parametrize("caller", CALLERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_state_is_read_and_effects_are_had_when_the_backward_runs(name, caller):
    program = program_of(*FUNCTIONS[name])
    (want, effects), (have, ours) = (observed(f, caller) for f in (program, thunder.jit(program)))
    assert ours == effects
    for w, h in zip(want, have, strict=True):
        assert (w is None and not h.any()) or torch.equal(w, h)


class Outer(Function):
    """Calls a function in its forward and in its backward, both of which read state."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return program_of(*FUNCTIONS["a variable"])(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return program_of(*FUNCTIONS["prints"])(g) * x * FACTOR


@torch.library.custom_op("backward_state::cube", mutates_args=())
def cube(x: torch.Tensor) -> torch.Tensor:
    return x**3


@torch.library.custom_op("backward_state::product", mutates_args=())
def product(xs: list[torch.Tensor], k: float) -> torch.Tensor:
    return xs[0] * xs[1] * k


def save_inputs(ctx, inputs, output):
    ctx.save_for_backward(*inputs)
    ctx.times = 0


def backward_of_cube(ctx, g):
    (x,) = ctx.saved_tensors
    ctx.times += 1
    print("backward", ctx.needs_input_grad)
    return g * x * FACTOR * ctx.times


def keep_inputs(ctx, inputs, output):
    ctx.xs, ctx.k = inputs


def backward_of_product(ctx, g):
    print(ctx.needs_input_grad)
    return [g * ctx.xs[1] * CONFIG["k"], g * FACTOR], None


cube.register_fake(torch.empty_like)
cube.register_autograd(backward_of_cube, setup_context=save_inputs)
product.register_fake(lambda xs, k: torch.empty_like(xs[0]))
product.register_autograd(backward_of_product, setup_context=keep_inputs)

OTHERS = {
    "a function in a function": lambda x: Outer.apply(x.sin()),
    "an operator": lambda x: cube(x * 2),
    "an operator of a list": lambda x: product([x, x.sin()], 2.0),
    "in a checkpointed region": lambda x: checkpoint(lambda y: cube(y).sin(), x, use_reentrant=False),
}


@pytest.mark.parametrize("caller", [first, twice])
@pytest.mark.parametrize("name", OTHERS)
def test_operators_and_nested_functions_read_state_when_the_backward_runs(name, caller):
    program = OTHERS[name]
    (want, effects), (have, ours) = (observed(f, caller) for f in (program, thunder.jit(program)))
    assert ours == effects
    for w, h in zip(want, have, strict=True):
        torch.testing.assert_close(h, w)


class Exponential(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x.exp() * Settings.k


def test_derivatives_of_any_order():
    def program(x):
        return Exponential.apply(x.sin())

    Settings.k = 1.5
    found = []
    for fn in (program, thunder.jit(program)):
        x = torch.linspace(0.1, 1.0, 3, dtype=torch.float64, requires_grad=True)
        derivatives = [fn(x)]
        for _ in range(4):
            derivatives += torch.autograd.grad(derivatives[-1].sum(), x, create_graph=True)
        found.append(derivatives)
    for want, have in zip(*found, strict=True):
        torch.testing.assert_close(have, want)


def test_a_second_derivative_of_a_tensor_that_the_function_was_not_given_is_refused():
    weight = torch.ones(3, requires_grad=True)
    program = program_of(squared, lambda ctx, g: g * weight)
    x = torch.ones(3, requires_grad=True)
    (gradient,) = torch.autograd.grad(thunder.jit(program)(x).sum(), x, create_graph=True)
    with pytest.raises(
        thunder.UnsupportedProgram, match="a tensor that requires grad and is not an argument of the function"
    ):
        gradient.sum().backward()


def test_state_that_only_the_backward_reads_is_no_guard():
    compiled = thunder.jit(program_of(*FUNCTIONS["a variable"]))
    observed(compiled, first)
    assert thunder.cache_misses(compiled) == 1


def test_a_backward_of_tensors_and_constants_is_traced():
    compiled = thunder.jit(program_of(squared, lambda ctx, g: g * ctx.saved_tensors[0]))
    observed(compiled, first)
    assert "run_backward" not in str(thunder.last_backward_traces(compiled)[0])


def test_variables_of_the_backward_itself_may_change():
    def summing(ctx, g):
        total = g

        def add(x):
            nonlocal total
            total = total + x

        add(g)
        add(ctx.saved_tensors[0])
        return total

    program = program_of(squared, summing)
    compiled = thunder.jit(program)
    (want, _), (have, _) = (observed(f, second) for f in (program, compiled))
    assert all(map(torch.allclose, want, have))
    assert "run_backward" not in str(thunder.last_backward_traces(compiled)[0])


def test_another_object_of_ctx_is_noticed():
    program = program_of(keeps_settings, lambda ctx, g: g * ctx.config["k"])
    compiled, x = thunder.jit(lambda x, config: program(x)), torch.ones(3, requires_grad=True)
    for k in (2.0, 3.0):
        CONFIG["k"] = k
        (gradient,) = torch.autograd.grad(compiled(x, CONFIG).sum(), x)
        assert torch.allclose(gradient, x.cos() * 2 * k)


WRONG = {
    "too few": lambda ctx, g: (g * FACTOR,)[:0],
    "too many": lambda ctx, g: (g * FACTOR, g),
    "no tensor": lambda ctx, g: FACTOR,
    "a shape": lambda ctx, g: g[:2] * FACTOR,
    "raises": lambda ctx, g: {}[FACTOR],
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_backward_raises_what_eager_raises(name):
    program = program_of(squared, WRONG[name])
    seen = []
    for fn in (program, thunder.jit(program)):
        result = fn(torch.ones(3, requires_grad=True)).sum()
        with pytest.raises((RuntimeError, KeyError)) as caught:
            result.backward()
        seen.append((caught.type, caught.value.args))
    assert seen[0] == seen[1]


def test_a_backward_that_writes_to_its_cotangent_raises_when_it_runs():
    compiled = thunder.jit(program_of(squared, lambda ctx, g: g.mul_(FACTOR)))
    with pytest.raises(thunder.UnsupportedProgram, match="wrote in place to a tensor that it did not make"):
        compiled(torch.ones(3, requires_grad=True)).sum().backward()


def changes_it_behind(x):
    sizes = [1.0]

    class Local(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.sizes = sizes
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * len(ctx.sizes)

    result = Local.apply(x)
    sizes.append(2.0)
    return result


def assigns_it_behind(x):
    factor = 2.0

    class Local(Function):
        forward = staticmethod(lambda ctx, x: x * 2)
        backward = staticmethod(lambda ctx, g: g * factor)

    result = Local.apply(x)
    factor = 3.0
    return result


def returns_it(x):
    sizes = [1.0]

    class Local(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.sizes = sizes
            return x * 2

        backward = staticmethod(lambda ctx, g: g * len(ctx.sizes))

    return Local.apply(x), sizes


def test_a_variable_that_a_traced_backward_reads_is_not_assigned_behind_the_call():
    with pytest.raises(thunder.UnsupportedProgram, match="after the call"):
        thunder.jit(assigns_it_behind)(torch.ones(3, requires_grad=True))


@pytest.mark.parametrize("program", [changes_it_behind, returns_it])
def test_a_backward_reads_an_object_of_the_program_as_it_is_when_it_runs(program):
    gradients = []
    for fn in (program, thunder.jit(program)):
        x = torch.ones(3, requires_grad=True)
        result = fn(x)
        if isinstance(result, tuple):
            result, sizes = result
            sizes += [1.0, 1.0]
        result.sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)


def test_a_tuple_that_the_backward_reads_is_returned_and_its_list():
    def program(x, pair):
        class Local(Function):
            @staticmethod
            def forward(ctx, x):
                ctx.pair = pair
                return x * 2

            backward = staticmethod(lambda ctx, g: g * len(ctx.pair[0]))

        return Local.apply(x), pair

    x = torch.ones(3, requires_grad=True)
    y, pair = thunder.jit(lambda x: program(x, ((1.0, x.sum()), 2.0)))(x)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.tolist() == [2.0, 2.0, 2.0]
    assert pair[0][1].item() == 3.0
    y, pair = thunder.jit(lambda x: program(x, ([1.0, x.sum()], 2.0)))(x)
    pair[0].append(5.0)
    (gradient,) = torch.autograd.grad(y.sum(), x)
    assert gradient.tolist() == [3.0, 3.0, 3.0]


def test_backwards_that_read_state_in_several_nodes(monkeypatch):
    """Two results, whose gradients are torch's to combine: each node has the calls of its own backwards."""
    first, second = (program_of(squared, lambda ctx, g, k=k: g * FACTOR * k) for k in (2.0, 5.0))

    def program(x, y):
        return first(x) * 2, second(y).sin(), first(x * y)

    def gradients(run, number):
        x, y = (torch.tensor([0.5, 1.5, 2.5], requires_grad=True) for _ in range(2))
        results = run(x, y)
        monkeypatch.setitem(globals(), "FACTOR", 7.0)
        found = torch.autograd.grad(results[number].sum(), (x, y), retain_graph=True, allow_unused=True)
        return *found, *torch.autograd.grad(sum(r.sum() for r in results), (x, y))

    compiled = thunder.jit(program)
    for number in range(3):
        torch.testing.assert_close(gradients(compiled, number), gradients(program, number))


# -- differences from eager ----------------------------------------------------------------------------------


def helper(g):
    return g * 2


def test_code_is_that_of_the_forward(monkeypatch):
    program = program_of(squared, lambda ctx, g: helper(g))
    x = torch.zeros(3, requires_grad=True)
    result = thunder.jit(program)(x)
    monkeypatch.setitem(globals(), "helper", lambda g: g * 5)
    (gradient,) = torch.autograd.grad(result.sum(), x)
    assert torch.equal(gradient, torch.full((3,), 4.0))


def test_none_of_a_backward_that_reads_state_is_zeros():
    program = program_of(squared, lambda ctx, g: None if FACTOR else g)
    x = torch.ones(3, requires_grad=True)
    thunder.jit(program)(x).sum().backward()
    assert torch.equal(x.grad, torch.zeros(3))


def test_a_cotangent_requires_grad_where_a_graph_is_made():
    compiled = thunder.jit(program_of(squared, lambda ctx, g: g * (2 if g.requires_grad else 3)))
    for create_graph, factor in ((False, 6.0), (True, 4.0)):
        x = torch.zeros(3, requires_grad=True)
        (gradient,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=create_graph)
        assert torch.equal(gradient, torch.full((3,), factor))


def test_all_backwards_of_a_program_run(capsys):
    program = program_of(*FUNCTIONS["prints"])
    x, y = (torch.ones(3, requires_grad=True) for _ in range(2))
    torch.autograd.grad((thunder.jit(lambda x, y: program(x) + y)(x, y)).sum(), y)
    assert capsys.readouterr().out == "backward\n"


class _Owner:
    scale, runs = 2.0, 0


def _by_context(x, owner):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, owner):
            ctx.owner = owner
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * ctx.owner.scale, None

    return Scaled.apply(x, owner)


def _by_hook(x, owner):
    y = x * 2
    y.register_hook(lambda g: g * owner.scale)
    return y


def _by_region(x, owner):
    def region(x):
        owner.runs += 1
        return (x.sin() * owner.scale).cos()

    return torch.utils.checkpoint.checkpoint(region, x, use_reentrant=False)


@pytest.mark.parametrize("program", [_by_context, _by_hook, _by_region])
def test_an_argument_that_a_backward_reads_lives_as_long_as_in_eager(program):
    def lives(fn):
        seen = []
        for _ in range(2):
            owner, x = _Owner(), torch.linspace(0, 1, 3, requires_grad=True)
            y, reference = fn(x, owner), weakref.ref(owner)
            del owner
            before = reference() is not None
            y.sum().backward()
            gradient = [round(v, 4) for v in x.grad.tolist()]
            del y
            gc.collect()
            seen.append((before, gradient, reference() is None))
        return seen

    assert lives(thunder.jit(program)) == lives(program)
