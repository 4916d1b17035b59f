"""Opaque callables run as they are, once and at their place, in each call of a compiled program."""

import pytest
import torch

import thunder
from frontend.opaque_calls import opaque_library
from thunder.base import opaque_marks

X = torch.arange(3.0)


@pytest.fixture(autouse=True)
def marks(monkeypatch):
    """Forget the marks of a test."""
    monkeypatch.setattr(opaque_marks, "_marked", dict(opaque_marks._marked))
    opaque_library.CALLS.clear()


def graded(fn, x, *args):
    """Return a result and the gradient of its sum."""
    x = x.clone().requires_grad_()
    result = fn(x, *args)
    result.sum().backward()
    return result.detach(), x.grad


def test_it_runs_once_in_each_call_between_two_parts_of_the_program():
    log = []

    @thunder.opaque
    def helper(y, n, *, tag):
        log.append((y.tolist(), torch.is_grad_enabled(), tag))
        return {"sine": y.sin() * n}, y.shape[0]

    def program(x):
        result, size = helper(x * 2, 3, tag="t")
        return result["sine"] * size + x

    compiled = thunder.jit(program)
    for start in (0.0, 1.0, 2.0):
        log.clear()
        found = graded(compiled, X + start)
        assert log == [(((X + start) * 2).tolist(), True, "t")]
        for a, b in zip(found, graded(program, X + start), strict=True):
            torch.testing.assert_close(a, b)
    assert thunder.cache_misses(compiled) == 1
    assert "run_opaque(_opaque_" in str(thunder.last_traces(compiled)[0])


def test_an_option_names_functions_modules_and_callables():
    def program(x):
        return opaque_library.through_numpy(x + 1) * 2

    with pytest.raises(
        thunder.UnsupportedProgram, match=r'opaque=\["frontend.opaque_calls.opaque_library.through_numpy"\]'
    ):
        thunder.jit(program)(X)
    for names in (
        ["frontend.opaque_calls.opaque_library.through_numpy"],
        ["frontend.opaque_calls.opaque_library"],
        (opaque_library.through_numpy,),
        [opaque_library],
    ):
        compiled = thunder.jit(program, opaque=names)
        opaque_library.CALLS.clear()
        for _ in range(2):
            assert torch.equal(compiled(X), (X + 1) * 4)
        assert len(opaque_library.CALLS) == 2


def test_a_name_that_is_not_there_is_refused():
    with pytest.raises(
        thunder.UserError, match=r"opaque= names 'frontend.opaque_calls.opaque_library.absent'"
    ):
        thunder.jit(lambda x: x, opaque=["frontend.opaque_calls.opaque_library.absent"])(X)
    with pytest.raises(thunder.UserError, match="cannot be opaque"):
        thunder.opaque(int)


def test_a_refusal_names_the_innermost_function_that_has_a_path():
    def program(x):
        return opaque_library.outer(x)

    with pytest.raises(thunder.UnsupportedProgram) as error:
        thunder.jit(program)(X)
    path = error.value.facts["opaque"]
    assert path == "frontend.opaque_calls.opaque_library.inner"
    assert torch.equal(thunder.jit(program, opaque=[path])(X), X * 2 + 1)
    method = "frontend.opaque_calls.opaque_library.Doubler.double"
    doubler = opaque_library.Doubler()
    assert torch.equal(thunder.jit(lambda x: doubler.double(x), opaque=[method])(X), X * 2)


def test_a_module_is_opaque_and_its_parameters_have_gradients():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = torch.nn.Linear(3, 3), torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.first(self.second(self.first(x)).relu())

    model = Model()
    thunder.opaque(model.second)
    x, compiled = torch.randn(2, 3), thunder.jit(model)
    for _ in range(2):
        gradients = []
        for call in (compiled, model):
            model.zero_grad()
            call(x).square().sum().backward()
            gradients.append([p.grad for p in model.parameters()])
        torch.testing.assert_close(*gradients)
    wanted = torch.autograd.grad(compiled(x).sum(), [model.second.weight])
    torch.testing.assert_close(wanted, torch.autograd.grad(model(x).sum(), [model.second.weight]))


def test_a_second_derivative_flows_through_it():
    cube = thunder.opaque(lambda x: x**3)
    compiled = thunder.jit(lambda x: cube(x * 2) + x)
    x = X.clone().requires_grad_()
    (first,) = torch.autograd.grad(compiled(x).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(first.detach(), 24 * X**2 + 1)
    torch.testing.assert_close(second, 48 * X)


def test_results_of_another_shape_or_value_are_another_compiled_program():
    runs = []

    @thunder.opaque
    def positive(x):
        runs.append(1)
        return x[x > 0], int((x > 0).sum())

    def program(x):
        values, count = positive(x * 1)
        return values * count

    compiled = thunder.jit(program)
    for misses, values in ((1, [1.0, -1.0, 2.0]), (2, [1.0, 1.0, 2.0]), (2, [-1.0, 3.0, 3.0])):
        runs.clear()
        found = compiled(torch.tensor(values))
        assert runs == [1]
        assert torch.equal(found, program(torch.tensor(values)))
        assert thunder.cache_misses(compiled) == misses


def test_a_decision_after_it_does_not_run_it_again():
    runs = []

    @thunder.opaque
    def noted(x):
        runs.append(1)
        return x + torch.rand(3)

    def program(x):
        y = noted(x + torch.rand(3))
        return y * torch.rand(3) if y.sum() > 0 else y - torch.rand(3)

    compiled = thunder.jit(program)
    for seed, x in enumerate((X, X - 10, X, X - 10)):
        results = []
        for call in (compiled, program):
            runs.clear()
            torch.manual_seed(seed)
            results.append((call(x), torch.rand(1), len(runs)))
        (found, next_found, count), (expected, next_expected, _) = results
        assert torch.equal(found, expected)
        assert torch.equal(next_found, next_expected)
        assert count == 1


def test_an_error_of_it_is_handled_by_the_program():
    @thunder.opaque
    def checked(x):
        if x.sum() > 5:
            raise ValueError("too large")
        return x.clone()

    def program(x):
        try:
            return checked(x) * 2
        except ValueError:
            return x - 1

    compiled = thunder.jit(program)
    for x in (X, X + 5, X, X + 5):
        assert torch.equal(compiled(x), program(x))


def test_state_that_it_changes_and_the_program_reads_is_refused():
    state = {"n": 1}

    @thunder.opaque
    def bump(x):
        state["n"] += 1
        return x + 1

    def reads_before(x):
        n = state["n"]
        return bump(x) * n

    def reads_after(x):
        return bump(x) * state["n"]

    with pytest.raises(thunder.UnsupportedProgram, match=r"has changed the value of .*which the program had"):
        thunder.jit(reads_before)(X)
    compiled = thunder.jit(reads_after)
    state["n"] = 1
    assert torch.equal(compiled(X), (X + 1) * 2)
    with pytest.raises(thunder.UnsupportedProgram, match=r"bump has changed the value of .*'n'"):
        compiled(X)


def test_what_the_program_has_written_before_is_refused_where_it_may_be_read():
    state = {"n": 1}
    scaled = thunder.opaque(lambda x: x * state["n"])

    def program(x):
        state["n"] = 2
        return scaled(x)

    with pytest.raises(thunder.UnsupportedProgram, match=r"may read .*has written before"):
        thunder.jit(program)(X)


@pytest.mark.parametrize(
    ("function", "match"),
    [
        (lambda x: x.add_(1), "writes in place to a tensor that it is passed"),
        (lambda x: x[1:], "returns memory of a tensor that it is passed"),
        (lambda x: object(), "returns an object of type object"),
    ],
)
def test_results_that_a_program_cannot_use_are_refused(function, match):
    thunder.opaque(function)
    with pytest.raises(thunder.UnsupportedProgram, match=match):
        thunder.jit(lambda x: function(x * 1))(X)


def test_a_write_to_a_result_is_refused():
    function = thunder.opaque(lambda x: x + 1)
    with pytest.raises(thunder.UnsupportedProgram, match="writes in place to a result of the opaque"):
        thunder.jit(lambda x: function(x)[1:].add_(1))(X)
    assert torch.equal(thunder.jit(lambda x: function(x).clone().add_(1))(X), X + 2)


def test_a_plan_and_a_backward_refuse_it():
    function = thunder.opaque(lambda x: x + 1)
    with pytest.raises(thunder.UnsupportedProgram, match="only planned"):
        thunder.jit(lambda x: function(x), data_dependent="refuse")(X)


def test_a_compiled_function_inside_of_it():
    inner = thunder.jit(
        lambda x: opaque_library.through_numpy(x) + 1, opaque=["frontend.opaque_calls.opaque_library"]
    )
    function = thunder.opaque(lambda x: inner(x) * 2)
    compiled = thunder.jit(lambda x: function(x) + function(x + 1))
    for x in (X, X + 1):
        assert torch.equal(compiled(x), (x * 2 + 1) * 2 + ((x + 1) * 2 + 1) * 2)


def test_a_tensor_that_an_opaque_callable_returns_as_it_is_is_the_one_that_it_was_passed():
    @thunder.opaque
    def chosen(x, y, first):
        return (x, [y, 1]) if first else (y, [x, 2])

    def program(x, y):
        z = x * 2
        a, (b, n) = chosen(z, y, x.shape[0] > 1)
        z.add_(1)
        return a * b * n + z, a is z, b is y

    compiled = thunder.jit(program)
    for size in (2, 1, 3):
        leaves = [torch.arange(1.0, size + 1).requires_grad_() for _ in range(4)]
        outcomes = program(*leaves[:2]), compiled(*leaves[2:])
        torch.testing.assert_close(outcomes[1][0], outcomes[0][0])
        assert outcomes[1][1:] == outcomes[0][1:]
        for outcome in outcomes:
            outcome[0].sum().backward()
        torch.testing.assert_close(leaves[2].grad, leaves[0].grad)
        torch.testing.assert_close(leaves[3].grad, leaves[1].grad)
