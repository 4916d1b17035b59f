"""Operators that are declared by a Python function that computes the same, and results other than tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor


@pytest.fixture
def ex():
    return OperatorExecutor("like_ex")


def two_products(a, b, c, d):
    return a * b, c * d


def two_products_by_numpy(a, b, c, d):
    return torch.from_numpy(np.multiply(a.numpy(), b.numpy())), torch.from_numpy(
        np.multiply(c.numpy(), d.numpy())
    )


def test_a_function_gives_metadata_and_the_implementation_runs(ex):
    op = ex.register_operator("products", like=two_products, fn=two_products_by_numpy)
    compiled = thunder.jit(lambda a, b: op(a, b, b, b), executors=[ex])
    a, b = torch.randn(2, 3), torch.randn(3)
    first, second = compiled(a, b)
    assert torch.equal(first, a * b)
    assert torch.equal(second, b * b)
    text = str(thunder.last_traces(compiled)[-1])
    assert "(t0, t1) = products(a, b, b, b)" in text
    assert "# t0 = prims.mul(" in text


def test_the_operator_is_differentiated_through_the_function(ex):
    op = ex.register_operator("products", like=two_products, fn=two_products_by_numpy)
    compiled = thunder.jit(lambda a, b: op(a, b, b, b)[0].sum(), executors=[ex])
    a, b = (torch.randn(3, requires_grad=True) for _ in range(2))
    compiled(a, b).backward()
    assert torch.equal(a.grad, b)
    assert torch.equal(b.grad, a)


def test_it_implements_an_operator_of_torch_forward_and_backward(ex):
    op = ex.register_operator("products", like=two_products, fn=two_products)

    def product(input, other):
        return op(input, other, input, other)[0]

    def product_with_gradient(input, other):
        result = product(input, other)
        g = get_grad(result)
        put_grads((input, other), op(other, g, input, g))
        return result

    ex.register_implementation(
        thunder.torch.mul, execution_transform=product, grad_transform=product_with_gradient
    )
    compiled = thunder.jit(lambda a, b: (a * b).sum(), executors=[ex])
    a, b = (torch.randn(3, requires_grad=True) for _ in range(2))
    compiled(a, b).backward()
    assert torch.equal(a.grad, b)
    assert torch.equal(b.grad, a)
    for traces in (thunder.last_traces(compiled), thunder.last_backward_traces(compiled)):
        assert [b.sym.id for b in traces[-1].bound_symbols].count("like_ex.products") == 1


def test_replaces_takes_several_functions(ex):
    def first(a):
        return a + 1

    def second(a):
        return a + 1

    ex.register_operator("increment", like=first, fn=lambda a: a + 1, replaces=(first, second))
    compiled = thunder.jit(lambda a: second(first(a)), executors=[ex])
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    assert [row.symbol for row in thunder.explain(compiled).rows] == ["like_ex.increment"] * 2


def test_a_function_with_other_arguments_than_the_implementation_is_refused(ex):
    with pytest.raises(thunder.PluginError, match="does not take the arguments of its meta function"):
        ex.register_operator("products", like=two_products, fn=lambda a, b: a * b)


def test_a_function_that_returns_a_real_tensor_is_a_fault_of_the_package(ex):
    constants = (torch.ones(2),)
    wrong = ex.register_operator("wrong", like=lambda a: constants[0], fn=torch.clone)
    with pytest.raises(thunder.PluginError, match=r"'like_ex\.wrong' returned a torch tensor"):
        thunder.jit(lambda a: wrong(a), executors=[ex])(torch.ones(2))


def test_a_meta_function_returns_a_string(ex):
    def layout_meta(a):
        return TensorProxy(like=a), "rows"

    op = ex.register_operator("with_layout", meta=layout_meta, fn=lambda a: (a + 1, "rows"))

    def program(a):
        result, layout = op(a)
        return result, f"{layout} first"

    compiled = thunder.jit(program, executors=[ex], debug_options=thunder.DebugOptions(check_traces=True))
    result, text = compiled(torch.ones(2))
    assert torch.equal(result, torch.full((2,), 2.0))
    assert text == "rows first"


def shifted(x, shift):
    return x + shift


@pytest.mark.parametrize(
    ("function", "args"), [(torch.relu, ()), (torch.sum, (0,)), (torch.nn.functional.gelu, ())]
)
def test_a_function_of_torch_is_its_operator(ex, function, args):
    calls = []

    def kernel(*args, **kwargs):
        calls.append(args)
        return function(*args, **kwargs)

    ex.register_operator("op", like=function, fn=kernel, replaces=function)
    x = torch.randn(2, 3)
    assert torch.equal(thunder.jit(lambda x: function(x, *args), executors=[ex])(x), function(x, *args))
    assert len(calls) == 1


def test_a_function_without_a_signature_is_refused(ex):
    with pytest.raises(
        thunder.RegistrationError, match="or a function that has a signature, and is <built-in"
    ):
        ex.register_operator("op", like=max, fn=shifted)


def test_a_meta_function_as_like_needs_a_gradient_rule(ex):
    op = ex.register_operator("shifted", like=lambda x, shift: TensorProxy(like=x), fn=shifted)
    compiled = thunder.jit(lambda x: op(x, 2.0), executors=[ex])
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    with pytest.raises(thunder.MissingGradient, match=r"like_ex\.shifted has no gradient rule"):
        compiled(torch.ones(2, requires_grad=True))


def test_results_of_a_meta_function_as_like_require_grad(ex):
    def metadata(x, shift):
        return TensorProxy(shape=x.shape, device=x.device, dtype=x.dtype)

    op = ex.register_operator("shifted", like=metadata, fn=shifted)

    def with_gradient(x, shift):
        result = op(x, shift)
        put_grads((x,), (get_grad(result),))
        return result

    ex.register_implementation(op, op, grad_transform=with_gradient)
    compiled = thunder.jit(lambda x: op(x, 2.0), executors=[ex])
    x = torch.ones(2, requires_grad=True)
    compiled(x).sum().backward()
    assert torch.equal(x.grad, torch.ones(2))


def test_a_kernel_may_return_an_argument_that_its_meta_function_returns(ex):
    op = ex.register_operator(
        "with_table",
        meta=lambda x, table: (TensorProxy(like=x), table),
        fn=lambda x, table: (x + table, table),
    )
    copies = ex.register_operator("copied", meta=lambda x: TensorProxy(like=x), fn=lambda x: x)
    options = thunder.DebugOptions(check_traces=True)
    x, table = torch.ones(2), torch.ones(2)
    compiled = thunder.jit(lambda x, table: op(x, table)[0], executors=[ex], debug_options=options)
    assert torch.equal(compiled(x, table), torch.full((2,), 2.0))
    with pytest.raises(thunder.PluginError, match="returns memory of its argument x"):
        thunder.jit(lambda x: copies(x), executors=[ex], debug_options=options)(x)


WEIGHT, SETTINGS = torch.ones(3), {"scale": 2.0}


def times_weight(x):
    return x * WEIGHT


def times_setting(x):
    return (lambda: x * SETTINGS["scale"])()


def by_linear():
    linear = torch.nn.Linear(3, 3)
    return lambda x: linear(x)


@pytest.mark.parametrize("function", [times_weight, times_setting, by_linear(), torch.nn.ReLU()])
def test_a_function_that_reads_state_is_refused(ex, function):
    with pytest.raises(thunder.RegistrationError, match=r"like_ex\.read' (reads|has state)"):
        ex.register_operator("read", like=function, fn=lambda x: x)


def ones_like_argument(x):
    return x * torch.ones(3, dtype=x.dtype, device=x.device)


def test_the_function_that_is_replaced_may_call_factories(ex):
    ex.register_operator("ones", like=ones_like_argument, fn=ones_like_argument, replaces=ones_like_argument)
    x = torch.randn(3, requires_grad=True)
    thunder.jit(lambda x: ones_like_argument(x), executors=[ex])(x).sum().backward()
    assert torch.equal(x.grad, torch.ones(3))


@pytest.mark.parametrize(
    "definition",
    [{"like": lambda x: {"doubled": x * 2}}, {"meta": lambda x: {"doubled": TensorProxy(like=x)}}],
    ids=["like", "meta"],
)
def test_results_in_a_dictionary_are_refused(ex, definition):
    op = ex.register_operator("doubled", **definition, fn=lambda x: {"doubled": x * 2})
    with pytest.raises(thunder.PluginError, match="returned an object of type dict"):
        thunder.jit(lambda x: op(x), executors=[ex])(torch.ones(3))
