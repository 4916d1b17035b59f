"""All spellings of an operator of torch are one operator for registration."""

from __future__ import annotations

import itertools

import pytest
import torch

import thunder
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import FusionExecutor, OperatorExecutor, Refusal
from thunder.ops.operator import all_rows, symbol_of
from thunder.ops.same_operators import operator_of, same_operators, spellings

F = torch.nn.functional
X = torch.randn(3, 4)

#: one operator in all its spellings, as a path to register by and a program
FAMILIES = {
    "relu": {
        "torch.relu": torch.relu,
        "torch.Tensor.relu": lambda x: x.relu(),
        "torch.nn.functional.relu": F.relu,
    },
    "softmax": {
        "torch.softmax": lambda x: torch.softmax(x, 1),
        "torch.special.softmax": lambda x: torch.special.softmax(x, 1),
        "torch.Tensor.softmax": lambda x: x.softmax(dim=1),
        "torch.nn.functional.softmax": lambda x: F.softmax(x),
    },
    "log_softmax": {
        "torch.log_softmax": lambda x: torch.log_softmax(x, 1),
        "torch.Tensor.log_softmax": lambda x: x.log_softmax(1),
        "torch.nn.functional.log_softmax": lambda x: F.log_softmax(x, dim=1),
    },
    "rms_norm": {
        "torch.rms_norm": lambda x: torch.rms_norm(x, (4,)),
        "torch.nn.functional.rms_norm": lambda x: F.rms_norm(x, (4,)),
    },
    "layer_norm": {
        "torch.layer_norm": lambda x: torch.layer_norm(x, (4,)),
        "torch.nn.functional.layer_norm": lambda x: F.layer_norm(x, (4,)),
    },
    "div": {
        "torch.div": lambda x: torch.div(x, 3.0),
        "torch.divide": lambda x: torch.divide(x, 3.0),
        "torch.Tensor.div": lambda x: x.div(3.0),
        "torch.true_divide": lambda x: torch.true_divide(x, 3.0),
        "torch.Tensor.__truediv__": lambda x: x / 3.0,
    },
    "abs": {
        "torch.abs": torch.abs,
        "torch.absolute": torch.absolute,
        "torch.Tensor.absolute": lambda x: x.absolute(),
        "torch.Tensor.__abs__": lambda x: abs(x),
    },
}
PAIRS = [
    (family, registered, called)
    for family, programs in FAMILIES.items()
    for registered, called in itertools.product(programs, repeat=2)
]


def path_of(path: str):
    value = torch
    for name in path.split(".")[1:]:
        value = getattr(value, name)
    return value


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize(("family", "registered", "called"), PAIRS)
def test_an_implementation_of_one_spelling_serves_the_others(family, registered, called):
    ex = OperatorExecutor("acme_spellings")
    symbol = symbol_of(operator_of(registered))
    kernel = ex.register_operator(
        family, like=symbol, fn=lambda *args, **kwargs: symbol_eager(*args, **kwargs)
    )

    def symbol_eager(*args, **kwargs):
        return path_of(symbol.id)(*args, **kwargs)

    ex.register_implementation(registered, kernel)
    program = FAMILIES[family][called]
    fn = thunder.jit(lambda x: program(x) * 1, executors=[ex])
    torch.testing.assert_close(fn(X), program(X))
    assert thunder.explain(fn).rows[0].claimed_by == "acme_spellings"


@pytest.mark.filterwarnings("ignore:Implicit dimension choice")
@pytest.mark.parametrize(("family", "registered", "called"), PAIRS[::2])
def test_a_replacement_of_one_spelling_replaces_the_others(family, registered, called):
    ex = OperatorExecutor("acme_replacing")
    symbol, function = symbol_of(operator_of(registered)), path_of(registered)
    ex.register_operator(family, like=symbol, fn=path_of(symbol.id), replaces=function)
    program = FAMILIES[family][called]
    fn = thunder.jit(lambda x: program(x) * 1, executors=[ex])
    torch.testing.assert_close(fn(X), program(X))
    assert thunder.explain(fn).rows[0].symbol == f"acme_replacing.{family}"


def test_every_function_of_a_row_leads_to_its_id():
    for row in all_rows():
        for function in row.torch:
            if operator_of(function) is not None and row.id.startswith("torch."):
                assert operator_of(function) == row.id
    for row in all_rows():
        for other in same_operators(row.id):
            assert row.id in same_operators(other)
            assert set(spellings(row.id)) == set(spellings(other))


def test_a_function_of_torch_can_be_registered_itself():
    ex = OperatorExecutor("acme_functions")
    kernel = ex.register_operator("relu", like=thunder.torch.relu, fn=F.relu)
    ex.register_implementation(torch.relu, kernel)
    assert list(ex.implmap) == ["torch.relu"]
    with pytest.raises(thunder.RegistrationError, match="neither a symbol, an operator id, nor a function"):
        ex.register_implementation(len, kernel)
    with pytest.raises(
        thunder.RegistrationError, match=r"no operator 'torch.reluu'. Did you mean .*'torch.relu'"
    ):
        ex.register_implementation("torch.reluu", kernel)


def test_a_checker_and_a_gradient_rule_get_the_arguments_of_the_registered_spelling():
    ex = OperatorExecutor("acme_rules")
    seen = []

    def checker(input, dim=None, _stacklevel=3, dtype=None):
        seen.append(dim)
        return dtype is None or Refusal("dtype", "computes in the dtype of the input")

    def gradient(input, dim=None, _stacklevel=3, dtype=None):
        result = thunder.torch.softmax(input, dim)
        g = get_grad(result)
        put_grad(input, 2 * result * (g - (g * result).sum(dim, True)))
        return result

    kernel = ex.register_operator("softmax", like=symbol_of("torch.nn.functional.softmax"), fn=F.softmax)
    ex.register_implementation(
        "torch.nn.functional.softmax", kernel, checker=checker, grad_transform=gradient
    )
    fn = thunder.jit(lambda x: (x.softmax(-1) * torch.arange(4)).sum(), executors=[ex])
    x, expected = (X.clone().requires_grad_() for _ in range(2))
    fn(x).backward()
    (expected.softmax(-1) * torch.arange(4)).sum().backward()
    torch.testing.assert_close(x.grad, 2 * expected.grad)
    assert set(seen) == {-1}
    fn = thunder.jit(lambda x: torch.softmax(x, 0, dtype=torch.float64), executors=[ex])
    torch.testing.assert_close(fn(X), torch.softmax(X, 0, dtype=torch.float64))
    assert "computes in the dtype of the input" in str(thunder.explain(fn))


def test_arguments_without_the_registered_form_are_left_to_torch():
    ex = OperatorExecutor("acme_forms")
    ex.register_operator(
        "division", like=thunder.torch.true_divide, fn=torch.true_divide, replaces=torch.true_divide
    )
    ex.register_operator("relu", like=symbol_of("torch.relu"), fn=torch.relu, replaces=torch.relu)

    def program(x):
        y = x * 1
        F.relu(y, inplace=True)
        return torch.div(x, 2, rounding_mode="floor"), x / 2, y, F.relu(x)

    fn = thunder.jit(program, executors=[ex])
    torch.testing.assert_close(fn(X), program(X))
    symbols = [r.symbol for r in thunder.explain(fn).rows]
    assert symbols.count("acme_forms.division") == 1
    assert symbols.count("acme_forms.relu") == 1
    assert "torch.div" in symbols


def test_a_fusion_executor_sees_the_spelling_that_it_supports():
    seen = []

    class Fuser(FusionExecutor):
        def fusion_pass(self, trace):
            seen.extend(b.sym.id for b in trace.bound_symbols if b.sym.executor is self)
            return trace

    ex = Fuser("acme_fuser")
    ex.register_supported("torch.nn.functional.relu")
    fn = thunder.jit(lambda x: torch.relu(x) + 1, executors=[ex])
    torch.testing.assert_close(fn(X), torch.relu(X) + 1)
    assert seen == ["torch.nn.functional.relu"]


def test_a_spelling_registered_itself_comes_before_another_one():
    ex = OperatorExecutor("acme_both")
    for name, target in (("a", "torch.relu"), ("b", "torch.nn.functional.relu")):
        kernel = ex.register_operator(name, like=symbol_of(target), fn=path_of(target))
        ex.register_implementation(target, kernel)
    fn = thunder.jit(lambda x: (torch.relu(x), F.relu(x)), executors=[ex])
    fn(X)
    names = [b.sym.name for b in thunder.last_traces(fn)[-1].bound_symbols]
    assert names[:2] == ["a", "b"]
