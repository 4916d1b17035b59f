"""``torch.autograd.Function``: forward, backward, what each reads, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import thunder
from comparison.derivatives import assert_as_eager
from comparison.inputs import leaf

FACTOR = 3.0


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x**2 * FACTOR


class Straight(Function):
    """Its backward is not the derivative of its forward."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g * 2


class SavesAnIntermediate(Function):
    @staticmethod
    def forward(ctx, x):
        m = x.sigmoid()
        ctx.save_for_backward(x, m)
        return x * m

    @staticmethod
    def backward(ctx, g):
        x, m = ctx.saved_tensors
        return g * (m + x * m * (1 - m))


class Several(Function):
    """Two results, an argument that is no tensor, an attribute of ctx, in-place writes to its own values."""

    @staticmethod
    def forward(ctx, x, y, k):
        ctx.save_for_backward(x, y)
        ctx.k = k
        z = x * y
        z.add_(1).mul_(k)
        return z, x.exp()

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        gx = torch.zeros_like(x)
        gx += g * y * ctx.k
        gx += h * x.exp()
        return gx, g * x * ctx.k if ctx.needs_input_grad[1] else None, None


class WithSetup(Function):
    @staticmethod
    def forward(x, y, k=2.0):
        m = x.exp()
        return m * y, m * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, ctx.k = inputs
        ctx.save_for_backward(x, y, *output)

    @staticmethod
    def backward(ctx, g, h):
        _, _, a, b = ctx.saved_tensors
        return g * a + h * b, g * b / ctx.k, None


class OfKeywordOnly(Function):
    """A parameter that only a keyword gives, after the context."""

    @staticmethod
    def forward(x, *, scale=2.0):
        return x * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 2


class OverridesApply(Function):
    """Its ``apply`` in Python calls torch's."""

    @classmethod
    def apply(cls, x):
        return super().apply(x * 2)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x**2


class Sorted(Function):
    @staticmethod
    def forward(ctx, x):
        values, order = x.sort()
        ctx.mark_non_differentiable(order)
        ctx.save_for_backward(order)
        return values, order

    @staticmethod
    def backward(ctx, g, none):
        assert none.dtype is torch.int64  # zeros
        (order,) = ctx.saved_tensors
        return torch.zeros_like(g).index_add(0, order, g)


class LeavesOut(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        order = x.argsort()
        return x * 2, order, "text"

    @staticmethod
    def backward(ctx, g, none, text):
        return g * 2 if none is None and text is None else None


class ReturnsItsArgument(Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


class ReturnsAView(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view(-1)

    @staticmethod
    def backward(ctx, g):
        return g.view(2, 3) * 3


class CallsAnother(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Cube.apply(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return Cube.apply(x) * Straight.apply(g)


class CallsItself(Function):
    """As ``exp``: a chain of derivatives without end."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * CallsItself.apply(x)


class WithoutGradients(Function):
    """A part of its backward is a constant to a second derivative."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.no_grad():
            scale = x * 2
            scale.add_(0)
        return g * scale


class NoGradientOfTheFirst(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return None, g * 2


class OfAnotherShape(Function):
    """Its gradients are summed to the shapes of the arguments, and converted."""

    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, g):
        return g.expand(2, 3), g.float()


class ByVjp(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def vjp(ctx, g):
        return g * 5


class ToldOfNone(Function):
    """Its backward sees which of its results have a gradient."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        if g is None:
            return h * 7
        return g * 5 if h is None else g + h


class ReturnedTwice(Function):
    @staticmethod
    def forward(ctx, x):
        y = x * 2
        return y, y

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h * 5


class Dirty(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x.clone(), y)
        x.mul_(y)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y * 3, g * x


class DirtyBuffer(Function):
    """Two results: a new one, and an argument without gradient, which has one from then on."""

    @staticmethod
    def forward(ctx, x, y):
        y.add_(x)
        ctx.mark_dirty(y)
        return x * 2, y

    @staticmethod
    def backward(ctx, g, h):
        return g * 2 + h, None


class Differentiates(Function):
    """Its backward differentiates by itself."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            return torch.autograd.grad(x.sin(), x, g.detach())[0]


def dirty_intermediate(x, y):
    h = x * 1
    result = Dirty.apply(h, y)
    assert result is h
    return result * h.sin()


def dirty_buffer(x, y):
    b = torch.ones(3, dtype=torch.float64)
    result, _ = DirtyBuffer.apply(x, b)
    return result * b.sin() * y


cube = Cube.apply


class Escapes(Cube):
    @staticmethod
    def forward(ctx, x, keep):
        keep(x * 2)
        return x * 3

    @staticmethod
    def backward(ctx, g):
        return g, None


def uses_what_escaped(x):
    kept = []
    return Escapes.apply(x, kept.append) + kept[0]


PROGRAMS = {
    "the first of two results": lambda x, y: ToldOfNone.apply(x)[0] * y,
    "the second of two results": lambda x, y: ToldOfNone.apply(x)[1] * y,
    "both results": lambda x, y: ToldOfNone.apply(x),
    "a result that is returned twice": lambda x, y: torch.dot(*ReturnedTwice.apply(x)) * y,
    "a dirty argument": dirty_intermediate,
    "a dirty argument without gradient": dirty_buffer,
    "differentiation in the backward": lambda x, y: Differentiates.apply(x) * y.detach(),
    "a function": lambda x, y: Cube.apply(x.sin()) * y,
    "a tensor that escapes": lambda x, y: uses_what_escaped(x) * y,
    "twice": lambda x, y: Cube.apply(x) + Cube.apply(y),
    "of itself": lambda x, y: Cube.apply(Cube.apply(x)) * y,
    "a straight-through estimator": lambda x, y: Straight.apply(x * 3) * y * x,
    "an intermediate saved": lambda x, y: SavesAnIntermediate.apply(x) * y,
    "several results": lambda x, y: Several.apply(x, y, 2.0),
    "one of several results": lambda x, y: Several.apply(x, y, 2.0)[1],
    "an argument without gradient": lambda x, y: Several.apply(x, y.detach(), 2.0),
    "setup_context": lambda x, y: WithSetup.apply(x, y),
    "a result without gradient": lambda x, y: Sorted.apply(x),
    "grads that are not materialised": lambda x, y: LeavesOut.apply(x)[:2],
    "its argument": lambda x, y: ReturnsItsArgument.apply(x) * x,
    "its argument alone": lambda x, y: ReturnsItsArgument.apply(x),
    "another in it": lambda x, y: CallsAnother.apply(x) * y,
    "itself in its backward": lambda x, y: CallsItself.apply(x * y),
    "a region without gradients": lambda x, y: WithoutGradients.apply(x.sin()) * y,
    "no gradient": lambda x, y: NoGradientOfTheFirst.apply(x, y),
    "gradients of other shapes": lambda x, y: OfAnotherShape.apply(x, y[0]),
    "an apply of its own": lambda x, y: OverridesApply.apply(x) * y,
    "an apply that was read before": lambda x, y: cube(x) * y,
    "an apply of an attribute": lambda x, y: getattr(Cube, "apply")(x) * y,  # noqa: B009
    "vjp": lambda x, y: ByVjp.apply(x) * y,
    "a local class": lambda x, y: local(x) * y,
}


def local(x):
    class Negated(Function):
        @staticmethod
        def forward(ctx, x):
            return -x

        @staticmethod
        def backward(ctx, g):
            return -g * 2

    return Negated.apply(x)


KEYWORDS = {
    "in another order": lambda x, y: WithSetup.apply(x, k=4.0, y=y),
    "an unknown one": lambda x, y: WithSetup.apply(x, y, z=4.0),
    "after the context": lambda x, y: Several.apply(x, y=y, k=2.0),
    "an unknown one after the context": lambda x, y: Several.apply(x, y, 2.0, z=4.0),
    "a keyword-only default": lambda x, y: OfKeywordOnly.apply(x) * y,
    "a keyword-only argument": lambda x, y: OfKeywordOnly.apply(x, scale=3.0) * y,
}


@pytest.mark.parametrize("name", KEYWORDS)
def test_keywords_are_accepted_and_refused_as_in_eager(name):
    program = KEYWORDS[name]
    refusal = type_error(program)
    if refusal is None:
        assert_as_eager(program, leaf(3), leaf(3, seed=1))
    else:  # torch 2.11 takes no keywords
        assert type_error(thunder.jit(program)) == refusal


def type_error(fn):
    """The first line of the TypeError that a call raises, None where it raises none."""
    try:
        fn(leaf(3), leaf(3, seed=1))
    except TypeError as error:
        return str(error).splitlines()[0]
    return None


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_derivatives_are_eagers(name):
    assert_as_eager(PROGRAMS[name], leaf(3), leaf(3, seed=1))


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_gradients_only_the_forward_counts(name):
    with torch.no_grad():
        assert_as_eager(PROGRAMS[name], leaf(3), leaf(3, seed=1), order=0)


def test_a_view_of_an_argument_is_one():
    assert_as_eager(lambda x: ReturnsAView.apply(x), leaf(2, 3), order=1)


def test_tensors_that_are_no_arguments_are_inputs():
    scale, shift = leaf(3, seed=2, grad=False), leaf(3, seed=3, grad=False)

    class Scaled(Function):
        @staticmethod
        def forward(ctx, x):
            return x * scale

        @staticmethod
        def backward(ctx, g):
            return g * shift

    compiled = assert_as_eager(lambda x: Scaled.apply(x), leaf(3))
    shift.mul_(10)
    x = leaf(3)
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    assert torch.equal(gradient, shift)
    assert thunder.cache_hits(compiled) == 2


def test_a_module_is_read_in_a_function():
    model = torch.nn.Linear(3, 3).double()

    class Through(Function):
        @staticmethod
        def forward(ctx, x):
            return x @ model.weight.t()

        @staticmethod
        def backward(ctx, g):
            return g @ model.weight * 2

    assert_as_eager(lambda x: Through.apply(x), leaf(2, 3), order=1)


class Counted(torch.nn.Module):
    """Its Function keeps statistics in buffers of the module."""

    def __init__(self):
        super().__init__()
        self.calls = 0
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))

    def forward(self, x):
        return Statistics.apply(x, self) * self.total


class Statistics(Function):
    @staticmethod
    def forward(ctx, x, module):
        module.calls += 1
        flat = module.total.view(-1)
        module.total.add_(x.sum())
        ctx.save_for_backward(module.total, flat)
        return x * module.total

    @staticmethod
    def backward(ctx, g):
        total, flat = ctx.saved_tensors
        return g * total * flat, None


def test_the_forward_writes_to_buffers_and_attributes_of_a_module():
    seen = []
    for wrap in (lambda m: m, thunder.jit):
        model = Counted()
        compiled, x = wrap(model), leaf(3)
        for _ in range(3):
            result = compiled(x)
        (gradient,) = torch.autograd.grad(result.sum(), x)
        seen.append((result, gradient, model.total, torch.tensor(model.calls)))
    for want, have in zip(*seen, strict=True):
        assert torch.allclose(have, want)


def test_random_numbers_of_a_forward_are_drawn_once():
    class Dropped(Function):
        @staticmethod
        def forward(ctx, x, p):
            mask = torch.rand_like(x) > p
            ctx.save_for_backward(mask)
            return x * mask

        @staticmethod
        def backward(ctx, g):
            (mask,) = ctx.saved_tensors
            return g * mask, None

    assert_as_eager(lambda x: Dropped.apply(x, 0.5) * 2, leaf(16))


def test_it_is_one_call_of_the_trace_that_decomposes_into_its_forward():
    compiled = thunder.jit(lambda x: SavesAnIntermediate.apply(x))
    compiled(leaf(3))
    call, _ = thunder.last_traces(compiled)[0].bound_symbols
    assert (call.sym.name, call.sym.is_prim) == ("SavesAnIntermediate", False)
    assert call.sym.id == f"autograd_function.{__name__}.SavesAnIntermediate"
    assert [sub.sym.name for sub in call.subsymbols] == ["sigmoid", "mul"]
    assert [p.requires_grad for p in call.flat_proxy_outs] == [True]


def test_two_calls_are_never_taken_for_one():
    def program(x):
        return Several.apply(x, x, 2.0)[0] - Several.apply(x, x, 3.0)[0]

    assert_as_eager(program, leaf(3))


def test_where_nothing_requires_grad_the_forward_is_inline():
    compiled = thunder.jit(lambda x: SavesAnIntermediate.apply(x))
    compiled(leaf(3, grad=False))
    names = [b.sym.name for b in thunder.last_traces(compiled)[0].bound_symbols]
    assert names == ["sigmoid", "mul", "python_return"]


def test_another_backward_is_noticed(monkeypatch):
    compiled = thunder.jit(lambda x: Straight.apply(x))
    x = leaf(3)
    compiled(x)
    monkeypatch.setattr(Straight, "backward", staticmethod(lambda ctx, g: g * 7))
    (gradient,) = torch.autograd.grad(compiled(x).sum(), x)
    assert torch.equal(gradient, torch.full_like(x, 7.0))


def test_under_autocast_the_forward_casts_and_the_backward_does_not():
    class Product(Function):
        @staticmethod
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g.to(a.dtype) @ b.mT, a.mT @ g.to(b.dtype)

    def program(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return Product.apply(a, b).float()

    a, b = leaf(2, 2, dtype=torch.float32), leaf(2, 2, seed=1, dtype=torch.float32)
    compiled = thunder.jit(program)
    for have, want in zip(
        torch.autograd.grad(compiled(a, b).sum(), (a, b)),
        torch.autograd.grad(program(a, b).sum(), (a, b)),
        strict=True,
    ):
        assert torch.equal(have, want)


def test_custom_fwd_and_custom_bwd():
    class Product(Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            return a @ b

        @staticmethod
        @torch.amp.custom_bwd(device_type="cpu")
        def backward(ctx, g):
            a, b = ctx.saved_tensors
            return g @ b.mT, a.mT @ g

    def program(a, b):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return Product.apply(a, b)

    a, b = leaf(2, 2, dtype=torch.float32), leaf(2, 2, seed=1, dtype=torch.float32)
    compiled = thunder.jit(program)
    assert compiled(a, b).dtype is torch.float32
    (gradient,) = torch.autograd.grad(compiled(a, b).sum(), a)
    assert torch.equal(gradient, torch.autograd.grad(program(a, b).sum(), a)[0])


# -- once_differentiable -------------------------------------------------------------------------------------


class Once(Cube):
    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * x**2 * 3


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda y: (y * y).sum(), "trying to differentiate twice a function that was marked with"),
        (lambda y: y.sum(), "does not require grad"),  # a cotangent that nothing is differentiated through
    ],
)
def test_a_function_that_is_once_differentiable_has_one_derivative(loss, message):
    def program(x):
        return Once.apply(x)

    for run in (program, assert_as_eager(program, leaf(3), order=1)):
        x = leaf(3)
        (gradient,) = torch.autograd.grad(loss(run(x)), x, create_graph=True)
        with pytest.raises(RuntimeError, match=message):
            gradient.sum().backward()


# -- what the backward does wrong is raised when it runs -----------------------------------------------------


def backward_of(body):
    class Given(Function):
        @staticmethod
        def forward(ctx, x, k):
            return x * 2

        backward = staticmethod(body)

    return lambda x: Given.apply(x, 1.0)


class NoBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2


def raises(ctx, g):
    raise KeyError("from the backward")


WRONG = {
    "no backward": NoBackward.apply,
    "raises": backward_of(raises),
    "too few": backward_of(lambda ctx, g: g),
    "too many": backward_of(lambda ctx, g: (g, None, g)),
    "of a number": backward_of(lambda ctx, g: (g, g)),
    "no tensor": backward_of(lambda ctx, g: (1.0, None)),
    "a shape": backward_of(lambda ctx, g: (g[:2], None)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_backward_raises_what_eager_raises_when_it_runs(name):
    seen = []
    for fn in (WRONG[name], thunder.jit(lambda x: WRONG[name](x))):
        x = leaf(3)
        result = fn(x).sum()
        with pytest.raises((RuntimeError, KeyError)) as caught:
            result.backward()
        seen.append((caught.type, caught.value.args))
    assert seen[0] == seen[1]


class DirtyAndNotReturned(Dirty):
    @staticmethod
    def forward(ctx, x, y):
        ctx.mark_dirty(x.mul_(y))
        return x * 1


@pytest.mark.parametrize(
    "program",
    [
        lambda x: Dirty.apply(x, x),
        lambda x: DirtyAndNotReturned.apply(x * 1, x),
    ],
)
def test_a_wrong_dirty_argument_raises_what_eager_raises(program):
    seen = []
    for fn in (program, thunder.jit(lambda x: program(x))):
        with pytest.raises(RuntimeError) as caught:
            fn(leaf(3))
        seen.append(str(caught.value).splitlines()[0])
    assert seen[0] == seen[1]


# -- refused -------------------------------------------------------------------------------------------------


class WritesItsArgument(Cube):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        return x[1:]


class NotStatic(Cube):
    def forward(ctx, x):
        return x * 2


class KeepsUnsaved(Cube):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * ctx.x


def writes_to_an_attribute(x):
    h = x * 1
    result = KeepsUnsaved.apply(h)
    h.view(-1).add_(1)
    return result * h


REFUSED = {
    "returns a part of what it writes to": (
        lambda x: WritesItsArgument.apply(x * 1),
        "the forward of WritesItsArgument",
    ),
    "writes to a cotangent": (backward_of(lambda ctx, g: (g.mul_(2), None)), "the backward of Given"),
    "no static method": (lambda x: NotStatic.apply(x), "@staticmethod"),
    "its node": (backward_of(lambda ctx, g: (g, ctx.next_functions)), "ctx.next_functions"),
    "a write to what ctx keeps unsaved": (writes_to_an_attribute, "reads from its ctx, unsaved, is written"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_traced_is_refused_by_name(name):
    program, words = REFUSED[name]
    with pytest.raises(thunder.UnsupportedProgram) as caught:
        thunder.jit(lambda x: program(x))(leaf(3))
    assert words in str(caught.value)
    assert "test_autograd_functions.py" in str(caught.value)


def test_a_third_derivative_of_a_function_that_calls_itself_is_refused():
    def derivatives():
        x = leaf(3)
        found = thunder.jit(lambda x: CallsItself.apply(x))(x)
        for _ in range(3):
            (found,) = torch.autograd.grad(found.sum(), x, create_graph=True)

    with pytest.raises(thunder.MissingGradient, match="CallsItself calls itself in its backward"):
        derivatives()


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_variables
        s = torch.sigmoid(x)
        return g * s * (1 + x * (1 - s))


def test_saved_tensors_have_their_old_name_too():
    x = torch.randn(3, requires_grad=True)
    found, expected = (
        torch.autograd.grad(f(x).sum(), x) for f in (thunder.jit(lambda x: Swish.apply(x)), Swish.apply)
    )
    torch.testing.assert_close(found, expected)
