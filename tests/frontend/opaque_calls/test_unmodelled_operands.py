"""Tensors whose class computes by ``__torch_dispatch__``, such as quantized weights, in compiled programs."""

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_map

import thunder


class Int8(torch.Tensor):
    """A matrix of integers with a scale for each row."""

    @staticmethod
    def __new__(cls, numbers, scales, requires_grad=False):
        return torch.Tensor._make_wrapper_subclass(
            cls, numbers.shape, dtype=scales.dtype, requires_grad=requires_grad
        )

    def __init__(self, numbers, scales, requires_grad=False):
        self.numbers, self.scales = numbers, scales

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return cls(args[0].numbers, args[0].scales)
        args, kwargs = tree_map(
            lambda x: x.numbers * x.scales if isinstance(x, cls) else x, (tuple(args), kwargs or {})
        )
        return func(*args, **kwargs)


def quantized(rows, columns, seed=0, requires_grad=False):
    numbers = torch.randint(-9, 9, (rows, columns), generator=torch.Generator().manual_seed(seed))
    scales = torch.linspace(0.1, 0.2, rows).unsqueeze(1)
    return Int8(numbers.to(torch.int8), scales, requires_grad)


def network():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    model[0].weight = nn.Parameter(quantized(6, 4), requires_grad=False)
    model[4].weight = nn.Parameter(quantized(3, 6), requires_grad=False)
    return model


def values(fn, model, rows):
    """Return a result, and the gradients of the input and of the ordinary parameters."""
    x = torch.linspace(-1, 1, rows * 4).reshape(rows, 4).requires_grad_()
    model.zero_grad()
    y = fn(x)
    y.square().sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in model.parameters() if p.grad is not None)]


def assert_agrees(compiled, model, rows):
    torch.testing.assert_close(values(compiled, model, rows), values(model, model, rows))


def test_layers_with_quantized_weights_agree_forward_and_backward():
    model = network()
    compiled = thunder.jit(model)
    for rows in (2, 2, 5, 2, 7):
        assert_agrees(compiled, model, rows)


def test_a_weight_that_changes_in_place_is_read_anew():
    model = network()
    compiled = thunder.jit(model)
    assert_agrees(compiled, model, 3)
    model[0].weight.numbers.neg_()
    model[4].weight.scales = model[4].weight.scales * 2
    assert_agrees(compiled, model, 3)
    assert thunder.cache_misses(compiled) == 1


@pytest.mark.parametrize("new", [quantized(6, 4, seed=1), torch.ones(6, 4)], ids=["quantized", "plain"])
def test_a_weight_that_is_replaced_is_noticed(new):
    model = network()
    compiled = thunder.jit(model)
    assert_agrees(compiled, model, 3)
    model[0].weight = nn.Parameter(new, requires_grad=False)
    assert_agrees(compiled, model, 3)


def test_a_plain_weight_that_is_replaced_by_a_quantized_one_is_noticed():
    model = network()
    compiled = thunder.jit(model)
    assert_agrees(compiled, model, 3)
    model[2].weight = nn.Parameter(quantized(6, 6), requires_grad=False)
    assert_agrees(compiled, model, 3)


def test_a_weight_runs_without_gradients_though_it_requires_grad():
    model = network()
    model[0].weight = nn.Parameter(quantized(6, 4, requires_grad=True))
    compiled, x = thunder.jit(model), torch.ones(2, 4)
    with torch.no_grad():
        for scale in (1, 2):
            torch.testing.assert_close(compiled(x * scale), model(x * scale))
    compiled(x).sum().backward()
    found, model[0].weight.grad = model[0].weight.grad, None
    model(x).sum().backward()
    torch.testing.assert_close(found, model[0].weight.grad)


def test_a_weight_that_requires_grad_later_is_noticed():
    model = network()
    compiled = thunder.jit(model)
    assert_agrees(compiled, model, 2)
    model[0].weight.requires_grad_()
    assert_agrees(compiled, model, 2)


class Holder(nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program = program
        self.register_buffer("w", quantized(4, 4))

    def forward(self, x):
        return self.program(x, self.w)


OPERATORS = {
    "linear": F.linear,
    "linear with keywords": lambda x, w: F.linear(input=x, weight=w, bias=None),
    "mm": torch.mm,
    "addmm": lambda x, w: torch.addmm(x[0], x, w),
    "aten": torch.ops.aten.mm.default,
    "method": lambda x, w: x.matmul(w),
    "left": lambda x, w: w @ x,
    "in a list": lambda x, w: torch.cat([x, w]),
    "python": lambda x, w: F.embedding(torch.tensor([0, 2]), w) * x[:2],
    "result twice": lambda x, w: (y := x @ w) * y,
    "chain": lambda x, w: F.linear(F.linear(x, w).relu(), w),
    "in place": lambda x, w: x + F.relu(w, inplace=True),
    "autocast": lambda x, w: _under_autocast(x, w),
    **{s: getattr(operator, s) for s in ("add", "sub", "mul", "truediv", "matmul")},
}


def _under_autocast(x, w):
    with torch.autocast("cpu"):
        return F.linear(x, w).float()


@pytest.mark.parametrize("name", OPERATORS)
def test_functions_of_torch_take_a_tensor_that_computes_itself(name):
    model = Holder(OPERATORS[name])
    compiled = thunder.jit(model)
    for rows in (4, 4):
        assert_agrees(compiled, model, rows)
    model.w.numbers.add_(1)
    assert_agrees(compiled, model, 4)


REFUSED = {
    "added to": (lambda x, w: (x * 1).add_(w), "writes to an argument"),
    "out": (lambda x, w: torch.mm(x, w, out=torch.empty(4, 4)), "writes to an argument"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_uses_are_refused_before_they_change_a_tensor(name):
    program, words = REFUSED[name]
    model = Holder(program)
    before = model.w.numbers.clone()
    with pytest.raises(thunder.UnsupportedProgram, match=words):
        thunder.jit(model)(torch.ones(4, 4))
    assert torch.equal(model.w.numbers, before)


class Unhashable:
    __hash__ = None

    def __call__(self, x, w):
        return F.linear(x, w)


def test_other_callables_may_be_passed_the_tensor():
    layer, none = Unhashable(), []
    model = Holder(lambda x, w: layer(x, w) + len(operator.add([w], none)))
    compiled = thunder.jit(model)
    for _ in range(2):
        assert_agrees(compiled, model, 4)


def test_the_tensor_itself_can_be_returned():
    model = Holder(lambda x, w: (w, x * 2))
    compiled = thunder.jit(model)
    for _ in range(2):
        assert compiled(torch.ones(4, 4))[0] is model.w
    model.w = quantized(4, 4, seed=2)
    assert compiled(torch.ones(4, 4))[0] is model.w


def test_an_item_of_an_argument_is_passed_to_functions_of_torch():
    compiled, x = thunder.jit(lambda x, weights: F.linear(x, weights[0]) + 1), torch.ones(4, 4)
    for seed in (0, 0, 1):
        w = quantized(4, 4, seed)
        torch.testing.assert_close(compiled(x, [w]), F.linear(x, w) + 1)


class OwnLinear(Int8):
    """A class that has torch's linear layer by ``__torch_function__``, as well."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is F.linear:
            return 2 * (args[0] @ (args[1].numbers * args[1].scales).t())
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def test_a_class_may_override_torchs_functions_too():
    layer, x = nn.Linear(4, 6, bias=False), torch.ones(2, 4)
    weight = quantized(6, 4)
    layer.weight = nn.Parameter(OwnLinear(weight.numbers, weight.scales), requires_grad=False)
    compiled = thunder.jit(layer)
    for scale in (1, 2):
        assert_agrees(compiled, layer, 2)
        torch.testing.assert_close(compiled(x * scale), 2 * F.linear(x * scale, weight))


class Scaled(Int8):
    factor = 1.0

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return super().__torch_dispatch__(func, types, args, kwargs) * Scaled.factor


def test_a_program_that_writes_what_the_class_reads_is_refused():
    def program(x, w):
        Scaled.factor = 3.0
        return F.linear(x, w)

    model = Holder(program)
    model.w = Scaled(model.w.numbers, model.w.scales)
    with pytest.raises(thunder.UnsupportedProgram, match="may read"):
        thunder.jit(model)(torch.ones(4, 4))
