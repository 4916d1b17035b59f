"""In-place operators and writes through views are eager's, wherever the tensor comes from."""

from __future__ import annotations

import pytest
import torch

import thunder
from soundness.harness import Cases, arg, check_case, ramp, world
from sweeping import in_turn

METHODS = {
    "add_": lambda x, y: x.add_(y),
    "sub_alpha": lambda x, y: x.sub_(y, alpha=2),
    "mul_": lambda x, y: x.mul_(y),
    "div_": lambda x, y: x.div_(y),
    "pow_": lambda x, y: x.pow_(2),
    "neg_": lambda x, y: x.neg_(),
    "exp_": lambda x, y: x.exp_(),
    "relu_": lambda x, y: x.relu_(),
    "sigmoid_": lambda x, y: x.sigmoid_(),
    "clamp_": lambda x, y: x.clamp_(1.5, 2.0),
    "zero_": lambda x, y: x.zero_(),
    "fill_": lambda x, y: x.fill_(3),
    "copy_": lambda x, y: x.copy_(y),
    "copy_broadcast": lambda x, y: x.copy_(y[0]),
    "copy_converts": lambda x, y: x.copy_(y.to(torch.float64)),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 5, 0.0),
    "augmented_plus": lambda x, y: augmented(x, y),
    "functional_inplace": lambda x, y: torch.nn.functional.relu(x, inplace=True),
    "torch_function_underscore": lambda x, y: torch.relu_(x),
    "chained": lambda x, y: x.add_(1).mul_(y).sub_(2),
    "setitem_integer": lambda x, y: put(x, 0, y[1]),
    "setitem_slice": lambda x, y: put(x, (slice(None), slice(1, None)), 7.0),
    "setitem_step": lambda x, y: put(x, (slice(None), slice(None, None, 2)), y[:, ::2]),
    "setitem_ellipsis": lambda x, y: put(x, (..., -1), y[:, 0]),
    "setitem_none": lambda x, y: put(x, (None, 1), y[0]),
    "setitem_all": lambda x, y: put(x, slice(None), y),
    "setitem_mask": lambda x, y: put(x, x > 1.5, 0.0),
    "setitem_tensor_index": lambda x, y: put(x, torch.tensor([1, 0]), y),
    "setitem_number": lambda x, y: put(x, (1, 2), 4),
    "setitem_augmented": lambda x, y: setitem_augmented(x, y),
    "index_add_": lambda x, y: x.index_add_(0, torch.tensor([0, 0]), y),
    "scatter_": lambda x, y: x.scatter_(0, torch.zeros(1, 3, dtype=torch.int64), y),
    "index_copy_": lambda x, y: x.index_copy_(0, torch.tensor([1]), y[:1]),
}


def augmented(x, y):
    x += y
    x *= 2
    x -= 1
    x /= y
    return x


def put(x, index, value):
    x[index] = value
    return x


def setitem_augmented(x, y):
    x[0] += y[0]
    x[:, 1] *= 3
    return x


def on_an_input(method):
    return lambda x, y: (METHODS[method](x, y) * 2, x)


def on_an_intermediate(method):
    def program(x, y):
        z = x * 1
        before = z + 0
        result = METHODS[method](z, y)
        return result + 1, z, before

    return program


def on_a_view(method):
    def program(x, y):
        base = torch.cat([x, x])
        view = base[1:3]
        METHODS[method](view, y)
        return base, view, base.sum()

    return program


def on_a_view_of_an_input(method):
    def program(x, y):
        METHODS[method](x.mT.mT, y)
        return x + 1

    return program


PLACES = {f.__name__: f for f in (on_an_input, on_an_intermediate, on_a_view, on_a_view_of_an_input)}


@pytest.mark.parametrize(("method", "place"), in_turn(METHODS, list(PLACES)))
def test_an_in_place_method_does_what_eager_does(place, method):
    rows = Cases()
    rows(values=arg(0, ramp(2, 3, start=3.0)))(
        lambda: world(PLACES[place](method), ramp(2, 3), ramp(2, 3, start=4.0))
    )
    check_case(rows[0], "values", thunder)


VIEWS = {
    "view": lambda x: x.view(3, 4),
    "reshape": lambda x: x.reshape(12),
    "transpose": lambda x: x.transpose(0, 1),
    "permute": lambda x: x.permute(1, 0),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(0, 1),
    "index": lambda x: x[1:, ::2],
    "split": lambda x: x.split(2)[1],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "unbind": lambda x: x.unbind(0)[2],
    "expand_of_a_slice": lambda x: x[:, 2:3],
    "diagonal": lambda x: x.diagonal(),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "flatten": lambda x: x.flatten(),
    "detach": lambda x: x.detach(),
    "of_a_view": lambda x: x.view(3, 4)[1:].mT[::2],
    "real_part": lambda x: torch.view_as_real(
        torch.view_as_complex(x.view(4, 3)[:, :2].contiguous().view(4, 2))
    )[..., 0],
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_through_a_view_reaches_base_and_siblings(name):
    def program(x):
        base = x + 0
        view, sibling = VIEWS[name](base), base.view(-1)
        view.mul_(2)
        middle = sibling + 0
        base.add_(1)
        return base, view, middle, sibling

    rows = Cases()
    rows(values=arg(0, ramp(4, 3, start=9.0)))(lambda: world(program, ramp(4, 3)))
    check_case(rows[0], "values", thunder)


@pytest.mark.parametrize("name", VIEWS)
def test_a_write_through_a_view_reaches_the_callers_tensor(name):
    def program(x):
        view = VIEWS[name](x)
        view.add_(10)
        return view

    rows = Cases()
    rows(values=arg(0, ramp(4, 3, start=9.0)))(lambda: world(program, ramp(4, 3)))
    check_case(rows[0], "values", thunder)


cases = Cases()


@cases(apart=lambda w: w.args.__setitem__(1, ramp(3, start=9.0)))
def arguments_that_overlap():
    base = ramp(5)

    def program(a, b):
        a.mul_(2)
        b.add_(1)
        return a + b

    return world(program, base[:3], base[2:])


@cases()
def same_argument_written_twice():
    x = ramp(3)

    def program(a, b):
        a.mul_(2)
        b.add_(1)
        return a, b

    return world(program, x, x)


@cases()
def promotion_that_torch_refuses():
    return world(lambda x: x.add_(0.5), torch.arange(3))


@cases()
def copy_between_dtypes():
    def program(x, y):
        x.copy_(y)
        y.copy_(x)
        return x, y

    return world(program, torch.zeros(3, dtype=torch.int64), ramp(3))


@cases()
def output_shape_that_does_not_fit():
    return world(lambda x, y: x.add_(y), ramp(1, 3), ramp(2, 3))


@cases()
def write_into_an_expanded_tensor():
    return world(lambda x: x.expand(2, 3).add_(1), ramp(1, 3))


@cases()
def view_that_a_copy_breaks():
    def program(x):
        flat = x.mT.reshape(-1)
        flat.add_(1)
        return x, flat

    return world(program, ramp(2, 3))


@cases()
def view_taken_before_and_after_a_write():
    def program(x):
        before = x[0]
        x.mul_(3)
        after = x[0]
        before.add_(1)
        return before, after, x

    return world(program, ramp(2, 3))


@cases(refused="UnsupportedProgram")
def resize():
    return world(lambda x: (x * 1).resize_(3), ramp(4))


@cases()
def storage_set():
    return world(lambda x: (x * 1).set_(x), ramp(4))


@cases()
def data_assigned():
    def program(x):
        y = x * 1
        y.data = x
        return y

    return world(program, ramp(4))


@cases()
def requires_grad_of_an_intermediate():
    return world(lambda x: (x * 1).requires_grad_(), ramp(4))


@cases()
def transposed_in_place():
    return world(lambda x: (x * 1).t_(), ramp(2, 3))


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)


@pytest.mark.parametrize("method", ["add_", "setitem_slice", "chained"])
def test_the_trace_that_runs_has_no_in_place_operation_but_the_write_back(method):
    compiled = thunder.jit(on_a_view(method))
    compiled(ramp(2, 3), ramp(2, 3))
    for trace in thunder.last_traces(compiled)[1:]:
        written = [b.sym.name for b in trace.bound_symbols if "IN_PLACE" in map(str, b.sym.tags or ())]
        assert not [name for name in written if name != "copy_"]


def test_writes_to_an_input_are_made_in_it():
    def program(x):
        x.add_(1)
        x.mul_(2)
        return x.sum()

    compiled = thunder.jit(program)
    compiled(ramp(3))
    names = [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols]
    assert sum(name.endswith("_in_place") for name in names) == 2
    assert not any("copy_" in name for name in names)


def test_a_write_to_a_leaf_that_requires_grad_raises_torchs_error():
    leaf = ramp(3).requires_grad_()
    with pytest.raises(RuntimeError) as eager:
        leaf.add_(1)
    with pytest.raises(thunder.OperatorError) as compiled:
        thunder.jit(lambda x: x.add_(1))(leaf)
    assert str(compiled.value).startswith(str(eager.value))


@pytest.mark.parametrize("of", [lambda y: y[0], lambda y: y[0, ::2], lambda y: y[:, ::2], lambda y: y.t()])
def test_ravel_gives_memory_without_gaps(of):
    def program(x):
        y = x * 1
        flat = of(y).ravel()
        strides = flat.stride()
        flat.mul_(2)
        return y, flat, strides

    x = torch.randn(4, 4)
    expected, found = program(x), thunder.jit(program)(x)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert found[2] == expected[2]


@pytest.mark.parametrize(
    "question", [lambda t: t.stride(), lambda t: t.is_contiguous(), lambda t: t.stride(0)]
)
@pytest.mark.parametrize(
    "made",
    [
        lambda y: y[0].contiguous(),
        lambda y: y.contiguous(),
        lambda y: y.t().contiguous(),
        lambda y: y[0].reshape(2, 2),
        lambda y: y.flatten(),
        lambda y: y[::2].to(torch.float32),
        lambda y: y[0],
        lambda y: y.t().reshape(-1),
    ],
)
def test_a_question_about_strides_does_not_separate_a_view_from_its_base(made, question):
    def program(x):
        y = x * 1
        part = made(y)
        answer = question(part)
        part.mul_(2)
        return y, part, answer

    x = torch.randn(4, 4)
    expected, found = program(x), thunder.jit(program)(x)
    assert torch.equal(found[0], expected[0])
    assert torch.equal(found[1], expected[1])
    assert found[2] == expected[2]
