"""Functions in whose place others are traced: the judge is eager with the function replaced in its class."""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import nn
from torch.nn import functional

import thunder
from thunder.base.errors import InvalidArgument, UnsupportedProgram
from thunder.plugins import Lookaside


class Block(nn.Module):
    def __init__(self, inner: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = nn.Identity() if inner is None else inner
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scaled(self.inner(x))

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight

    @classmethod
    def power(cls, x: torch.Tensor) -> torch.Tensor:
        return x**2


class Inherits(Block):
    pass


class Overrides(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + 5

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        return x - 1


FORWARD, SCALED = Block.forward, Block.scaled


def twice(self: Any, x: torch.Tensor) -> torch.Tensor:
    return 2 * FORWARD(self, x)


def shifted(self: Any, x: torch.Tensor) -> torch.Tensor:
    return SCALED(self, x + 1)


def hooked() -> nn.Module:
    module = Block(Inherits())
    module.register_forward_hook(lambda module, args, result: result + 0.5)
    return module


def itself(module: nn.Module) -> Callable[..., Any]:
    return module


MODULES: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Callable[..., Any]]]] = {
    "a module": (Block, itself),
    "a subclass that inherits": (Inherits, itself),
    "a subclass that overrides and calls super": (Overrides, itself),
    "nested instances": (lambda: Block(Inherits(Block())), itself),
    "modules with hooks": (hooked, itself),
    "a bound method": (Block, lambda module: module.forward),
    "a partial": (lambda: Block(Block()), lambda module: functools.partial(FORWARD, module)),
    "modules of a container": (lambda: nn.Sequential(Block(), nn.Tanh(), Overrides(Inherits())), itself),
}


@pytest.mark.parametrize(("module", "read"), MODULES.values(), ids=MODULES)
@pytest.mark.parametrize(("name", "replacement"), [("forward", twice), ("scaled", shifted)])
def test_calls_are_replaced_as_if_the_class_had_the_replacement(module, read, name, replacement):
    model, x = module(), torch.randn(3, requires_grad=True)
    result = thunder.jit(read(model), lookasides=[Lookaside(getattr(Block, name), replacement)])(x)
    with mock.patch.object(Block, name, replacement):
        expected = model(x)
    torch.testing.assert_close(result, expected)
    (expected_gradient,) = torch.autograd.grad(expected.sum(), x)
    torch.testing.assert_close(torch.autograd.grad(result.sum(), x)[0], expected_gradient)


def test_a_class_means_its_forward_and_another_class_the_forward_of_that():
    class Negative(nn.Module):
        def forward(self, x):
            return -x

    x = torch.randn(3)
    assert torch.equal(thunder.jit(Block(), lookasides=Lookaside(Block, Negative))(x), -x)


def test_of_an_inherited_forward_only_instances_of_the_class_are_replaced():
    model = nn.Sequential(Block(), Inherits(), Overrides())
    x = torch.randn(3)
    compiled = thunder.jit(model, lookasides=[Lookaside(Inherits, lambda self, x: x * 100)])
    torch.testing.assert_close(compiled(x), model[2](model[0](x) * 100))
    both = [Lookaside(Block, lambda self, x: x + 1), Lookaside(Inherits, lambda self, x: x * 100)]
    torch.testing.assert_close(thunder.jit(model[:2], lookasides=both)(x), (x + 1) * 100)


def test_a_class_method_is_replaced_for_its_class_and_subclasses():
    def program(x):
        return Block.power(x), Inherits.power(x), Overrides.power(x)

    compiled = thunder.jit(program, lookasides=[Lookaside(Inherits.power, lambda cls, x: cls.__name__)])
    x = torch.randn(3)
    assert [r if isinstance(r, str) else torch.equal(r, x**2) for r in compiled(x)] == [
        True,
        "Inherits",
        True,
    ]


def doubled(x: Any) -> Any:
    return x * 2


def count(n: int) -> Iterator[int]:
    yield from range(n)


def more(n: int) -> Iterator[int]:
    for i in count(n):
        yield i + 10


@functools.lru_cache
def cached(n: int) -> int:
    return n + 1


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return doubled(x) * self.factor

    @property
    def half(self) -> float:
        return self.factor / 2


@pytest.mark.parametrize(
    ("program", "lookaside", "expected"),
    [
        (lambda x: doubled(x), Lookaside(doubled, torch.relu), torch.relu),
        (lambda x: doubled(x), Lookaside(doubled, thunder.torch.sin), torch.sin),
        (lambda x: doubled(x), Lookaside(doubled, thunder.prims.sin), torch.sin),
        (lambda x: doubled(x), Lookaside(doubled, thunder.jit(torch.cos)), torch.cos),
        (lambda x: doubled(x), Lookaside(doubled, thunder.jit(nn.Tanh())), torch.tanh),
        (lambda x: doubled(x), Lookaside(doubled, Scale(3.0)), lambda x: x * 6),
        (lambda x: doubled(x), Lookaside(doubled, Scale(3.0).__call__), lambda x: x * 6),
        (lambda x: doubled(x), Lookaside(doubled, functools.partial(torch.add, 1.5)), lambda x: x + 1.5),
        (
            lambda x: next(map(doubled, [x])),
            Lookaside(doubled, lambda x: doubled(x) + 1),
            lambda x: x * 2 + 1,
        ),
        (lambda x: x * sum(count(3)), Lookaside(count, more), lambda x: x * 33),
        (lambda x: x * cached(1), Lookaside(cached, lambda n: 10 * cached(n)), lambda x: x * 20),
        (lambda x: x * cached(1), Lookaside(cached.__wrapped__, lambda n: 7), lambda x: x * 7),
        (lambda x: x * Scale(3.0).half, Lookaside(Scale.half.fget, lambda self: 4.0), lambda x: x * 4),
        (
            nn.Softmax(0),
            Lookaside(functional.softmax, lambda x, dim, **kwargs: functional.softmax(x, dim) * 2),
            lambda x: torch.softmax(x, 0) * 2,
        ),
    ],
    ids=[
        "a function of torch",
        "an operator",
        "a primitive",
        "a compiled function",
        "a compiled module",
        "a callable object",
        "a bound method",
        "a partial",
        "called by map",
        "a generator",
        "under lru_cache",
        "inside of lru_cache",
        "a property's function",
        "a Python function of torch",
    ],
)
def test_what_is_replaced_and_what_replaces_it(program, lookaside, expected):
    x = torch.randn(4)
    torch.testing.assert_close(thunder.jit(program, lookasides=[lookaside])(x), expected(x))


def test_the_parameters_and_reads_of_a_replacement_are_followed():
    layer, factors = nn.Linear(3, 3), [2.0]

    def replacement(x):
        return layer(x) * factors[0]

    compiled = thunder.jit(lambda x: doubled(x), lookasides=[Lookaside(doubled, replacement)])
    x = torch.randn(3)
    compiled(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, 2 * x.expand(3, 3))
    with torch.no_grad():
        layer.weight.mul_(2)
    torch.testing.assert_close(compiled(x), layer(x) * 2)
    factors[0] = 5.0
    torch.testing.assert_close(compiled(x), layer(x) * 5)
    assert [str(r.source) for r in thunder.last_recompile_reasons(compiled)] == ["factors[0]"]


class Scaled(torch.autograd.Function):
    """A function whose backward prints, so that it is called as it is each time that it runs."""

    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        print("backward")
        return doubled(gradient)


@pytest.mark.parametrize(
    "replacement", [lambda x: x * 1000, lambda x: doubled(x) * 500], ids=["other", "calls it"]
)
def test_a_backward_that_is_not_traced_calls_the_replacement(replacement, capsys):
    compiled = thunder.jit(lambda x: Scaled.apply(x), lookasides=[Lookaside(doubled, replacement)])
    x = torch.ones(2, requires_grad=True)
    compiled(x).sum().backward()
    assert (capsys.readouterr().out, x.grad.tolist()) == ("backward\n", [1000.0, 1000.0])


class Node:
    def __init__(self, parent: Node | None = None) -> None:
        self.parent = parent

    @property
    def depth(self) -> int:
        return 1 if self.parent is None else self.parent.depth + 1


def test_a_replaced_property_of_another_object_is_replaced_within_the_replacement():
    def depth(node):
        return 0 if node.parent is None else node.parent.depth + 10

    compiled = thunder.jit(lambda x, n: x * n.depth, lookasides=[Lookaside(Node.depth.fget, depth)])
    assert compiled(torch.ones(()), Node(Node(Node()))).item() == 20


def test_a_decorated_function_is_replaced():
    @torch.no_grad()
    def halved(x):
        return x / 2

    compiled = thunder.jit(lambda x: halved(x), lookasides=[Lookaside(halved, lambda x: halved(x) + x)])
    x = torch.randn(3, requires_grad=True)
    torch.testing.assert_close(compiled(x), x * 1.5)


def test_the_ledger_names_what_was_replaced():
    compiled = thunder.jit(lambda x: doubled(doubled(x)), lookasides=[Lookaside(doubled, torch.relu)])
    compiled(torch.ones(2))
    explanation = thunder.explain(compiled)
    (replaced,) = explanation.replaced
    assert (replaced.function.endswith("test_traced_replacements.doubled"), replaced.calls) == (True, 2)
    assert str(explanation).splitlines()[-1] == f"replaced: {replaced}"
    assert '"replaced": [{"function": ' in explanation.to_json()


def test_a_program_that_raises_is_not_run_again_with_the_original():
    def program(x):
        try:
            return doubled(x)
        except RuntimeError:
            return x

    compiled = thunder.jit(program, lookasides=[Lookaside(doubled, torch.linalg.cholesky)])
    torch.testing.assert_close(compiled(torch.eye(2)), torch.eye(2))
    with pytest.raises(RuntimeError, match="not positive-definite"):
        compiled(-torch.eye(2))


def test_a_compiled_function_with_lookasides_is_not_inlined_without_them():
    inner = thunder.jit(doubled, lookasides=[Lookaside(doubled, torch.relu)])
    with pytest.raises(UnsupportedProgram, match="compiled with lookasides"):
        thunder.jit(lambda x: inner(x))(torch.ones(2))


def test_a_pickled_compiled_function_keeps_its_lookasides():
    compiled = pickle.loads(pickle.dumps(thunder.jit(Block(), lookasides=[Lookaside(FORWARD, twice)])))
    assert compiled(torch.ones(())).item() == 6


REFUSED: dict[str, tuple[Any, str]] = {
    "in C, of torch": (torch.add, r"torch\.add, which is implemented in C(.|\n)*replaces=fn"),
    "in C": (len, "builtins.len, which is implemented in C"),
    "in C, a method": (str.upper, "str.upper, which is implemented in C"),
    "in C, of tensors": (torch.Tensor.add_, r"(.|\n)*Tensor.*add_"),
    "a rule": (torch.utils.checkpoint.checkpoint, "checkpoint, which thunder carries out by a rule"),
    "a rule, of a class": (torch.autograd.Function.apply, "Function.apply, which thunder carries out"),
    "a rule of modules": (nn.Module.__call__, "(.|\n)*Pass the class, for its forward"),
    "a method of tensors": (torch.Tensor.norm, "Tensor.norm, a method of tensors"),
    "an operator": (thunder.torch.sin, "torch.sin, which is an operator"),
    "without forward": (nn.Module, "Module, which has no forward"),
    "an instance": (nn.Tanh(), "an instance of torch"),
    "a method of an instance": (nn.Tanh().forward, "Tanh.forward, bound to one Tanh"),
    "a partial": (functools.partial(doubled, 1), "a functools.partial of .*doubled"),
    "compiled": (thunder.jit(doubled), "doubled, which is compiled"),
    "another class": (Scale, "Scale, which is not a class of modules"),
    "no callable": (3, "3, which is not a Python function"),
}


@pytest.mark.parametrize(("fn", "text"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_replaced_is_refused_by_name(fn, text):
    with pytest.raises(InvalidArgument, match=f"cannot replace {text}|{text}"):
        thunder.jit(doubled, lookasides=[Lookaside(fn, doubled)])


def test_wrong_declarations_are_refused():
    with pytest.raises(InvalidArgument, match="received 3, of type int"):
        thunder.jit(doubled, lookasides=[3])
    with pytest.raises(InvalidArgument, match="replace_with=3, which cannot be called"):
        Lookaside(doubled, 3)
    with pytest.raises(InvalidArgument, match=r"two lookasides replace .*\.doubled"):
        thunder.jit(doubled, lookasides=[Lookaside(doubled, torch.relu), Lookaside(doubled, torch.sin)])
    with pytest.raises(InvalidArgument, match="thunder's own modules are not traced"):
        thunder.jit(doubled, lookasides=[Lookaside(doubled, thunder.core.pytree.tree_map)])
    with pytest.raises(InvalidArgument, match="by itself"):
        thunder.jit(doubled, lookasides=[Lookaside(doubled, doubled)])
