"""Arguments of operators that packages define: tracked, guarded and differentiated, or refused."""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections import OrderedDict, defaultdict, deque, namedtuple
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.base.pytree import tree_iter
from thunder.core.pytree import register_pytree_node, register_pytree_node_dataclass
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import OperatorExecutor, deregister_executor, single_op_executor
from thunder.ops.operator import Operator
from thunder.plugins import get_manager, hookimpl
from thunder.torch import torchsymbol


@dataclasses.dataclass
class Config:
    s: float = 2.0


class Holder:
    def __init__(self, s: Any = 2.0) -> None:
        self.s = s


class Mode(enum.Enum):
    DOUBLE = 2.0
    TRIPLE = 3.0


@register_pytree_node_dataclass
@dataclasses.dataclass
class Scales:
    """Registered, with a field that `__init__` computes: it is not called again."""

    s: Any
    total: Any = dataclasses.field(init=False, default=0)

    def __post_init__(self) -> None:
        self.total = self.s * 2


class Box:
    def __init__(self, content: Any, power: int) -> None:
        self.content, self.power = content, power


register_pytree_node(Box, lambda b: ((b.content,), b.power), lambda power, children: Box(children[0], power))

Pair = namedtuple("Pair", "first second")


def numbers_in(how: Any) -> Any:
    """The product of everything in an argument, however it is nested."""
    if isinstance(how, Box):
        return numbers_in(how.content) ** how.power
    if isinstance(how, Scales):
        return how.s * how.total
    if isinstance(how, enum.Enum):
        return how.value
    if isinstance(how, str):
        return float(how)
    if isinstance(how, torch.dtype):
        return float(torch.finfo(how).bits)
    if isinstance(how, dict):
        return functools.reduce(lambda a, b: a * numbers_in(b), how.values(), 1.0)
    if isinstance(how, (list, tuple, deque)):
        return functools.reduce(lambda a, b: a * numbers_in(b), how, 1.0)
    return 1.0 if how is None else how


def scale(x: torch.Tensor, how: Any) -> torch.Tensor:
    return x * numbers_in(how)


ex = OperatorExecutor("argued")
scale_symbol = ex.register_operator(
    "scale",
    meta=lambda x, how: TensorProxy(
        like=x, requires_grad=any(getattr(t, "requires_grad", False) for t in tree_iter((x, how)))
    ),
    fn=scale,
    replaces=scale,
)


def scale_rule(x: Any, how: Any) -> Any:
    """The gradients of `x` and of one tensor `how`."""
    out = scale_symbol(x, how)
    g = get_grad(out)
    put_grad(x, g * how)
    if isinstance(how, TensorProxy):
        put_grad(how, g * x)
    return out


ex.register_implementation(scale_symbol, scale_symbol, grad_transform=scale_rule)

SETTINGS: dict[str, Any] = {"how": None}


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((2,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return scale(x, self.weight)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a number": (lambda: 2.0, lambda how: 3.0),
    "an integer that becomes a float": (lambda: 2, lambda how: 2.5),
    "a string": (lambda: "2", lambda how: "3"),
    "a dtype": (lambda: torch.float32, lambda how: torch.float64),
    "an enum": (lambda: Mode.DOUBLE, lambda how: Mode.TRIPLE),
    "None": (lambda: None, lambda how: 3.0),
    "a tensor": (lambda: torch.full((2,), 2.0), lambda how: torch.full((2,), 3.0)),
    "a tensor that is written to": (lambda: torch.full((2,), 2.0), lambda how: how.mul_(2)),
    "a list": (lambda: [2.0, torch.ones(2)], lambda how: [*how, 4.0]),
    "a list that grows": (lambda: [2.0], lambda how: how.append(4.0) or how),
    "a dict": (lambda: {"a": 2.0}, lambda how: how.update(b=torch.full((2,), 5.0)) or how),
    "an ordered dict": (lambda: OrderedDict(a=torch.ones(2)), lambda how: how.update(b=5.0) or how),
    "a default dict": (lambda: defaultdict(list, a=torch.ones(2)), lambda how: how.update(b=5.0) or how),
    "a deque": (lambda: deque([torch.ones(2)], 3), lambda how: how.append(2.0) or how),
    "a named tuple": (lambda: Pair(2.0, torch.ones(2)), lambda how: how._replace(first=5.0)),
    "a registered dataclass": (lambda: Scales(torch.ones(2)), lambda how: setattr(how, "s", 5.0) or how),
    "a list of one": (lambda: [Scales(2.0)], lambda how: setattr(how[0], "total", 5.0) or how),
    "an object of a registered class": (
        lambda: Box(torch.full((2,), 2.0), 2),
        lambda how: setattr(how, "power", 3) or how,
    ),
    "its tensor": (
        lambda: Box(torch.full((2,), 2.0), 2),
        lambda how: setattr(how, "content", torch.full((2,), 7.0)) or how,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_argument_from_a_global_is_seen(name: str) -> None:
    make, change = CHANGES[name]
    x = torch.tensor([1.0, 2.0])
    SETTINGS["how"] = make()
    compiled = thunder.jit(lambda x: scale(x, SETTINGS["how"]), executors=[ex])
    torch.testing.assert_close(compiled(x), scale(x, SETTINGS["how"]))
    SETTINGS["how"] = change(SETTINGS["how"])
    torch.testing.assert_close(compiled(x), scale(x, SETTINGS["how"]))
    assert thunder.explain(compiled).rows[0].claimed_by == "argued"


def test_the_operator_holds_its_own_copy_of_a_container() -> None:
    def program(x: torch.Tensor) -> Any:
        numbers, queue = OrderedDict(a=x), deque([x])
        result = scale(x, numbers), scale(x, queue)
        numbers["b"] = x
        queue.append(x)
        return result

    x = torch.tensor([1.0, 2.0])
    torch.testing.assert_close(thunder.jit(program, executors=[ex])(x), program(x))


def test_a_parameter_of_a_module_is_a_differentiable_input_also_when_replaced() -> None:
    model = Model()
    compiled = thunder.jit(model, executors=[ex])
    x = torch.tensor([3.0, 4.0])
    for value in (2.0, 5.0):
        model.weight = torch.nn.Parameter(torch.full((2,), value))
        compiled(x).sum().backward()
        torch.testing.assert_close(model.weight.grad, x)
        torch.testing.assert_close(compiled(x), x * value)


def _row_plugin(symbol_id: str) -> Any:
    class Rows:
        @hookimpl
        def thunder_operators(self, executor: Any) -> Any:
            if executor.name == "torch":
                meta = lambda x, how: TensorProxy(like=x)  # noqa: E731
                yield Operator(id=symbol_id, meta=meta, eager=scale, torch=(row_scale,))

    return Rows()


def row_scale(x: torch.Tensor, how: Any) -> torch.Tensor:
    return scale(x, how)


def composite_scale(x: torch.Tensor, how: Any) -> torch.Tensor:
    return x * how.s


@pytest.fixture(scope="module")
def composite() -> Any:
    """A composite operator whose decomposition would read its argument."""
    return torchsymbol(composite_scale, id="argued.composite")(lambda x, how: x * how.s)


@pytest.fixture
def row() -> Iterator[None]:
    with get_manager().temporary(_row_plugin("argued.row_scale"), "argued rows"):
        yield


@pytest.mark.parametrize(
    ("way", "parameter"),
    [
        (lambda x, how: scale(x, how), "how"),
        (lambda x, how: scale_symbol(x, how), "how"),
        (lambda x, how: scale(x, [how]), r"how\[0\]"),
        (lambda x, how: scale(x, {"k": (how,)}), r"how\['k'\]\[0\]"),
        (lambda x, how: composite_scale(x, how), "how"),
        (lambda x, how: row_scale(x, how), "how"),
    ],
    ids=["replaces", "the symbol", "in a list", "in a dict", "torchsymbol", "a row"],
)
@pytest.mark.usefixtures("composite", "row")
def test_an_object_is_refused_by_name_at_the_users_line_however_the_operator_is_called(
    way: Callable[..., Any], parameter: str
) -> None:
    config = Config()
    compiled = thunder.jit(lambda x: way(x, config), executors=[ex])
    for _ in range(2):
        with pytest.raises(
            thunder.core.errors.UnsupportedOperator, match=f"an object of type Config as {parameter}"
        ) as error:
            compiled(torch.ones(2))
    assert "test_operator_arguments.py" in str(error.value)
    assert "such as config.s" in str(error.value)
    assert "register_pytree_node_dataclass" in str(error.value)


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (Holder(), ("an object of type Holder", "value.s")),
        (SimpleNamespace(s=2.0), ("an object of type SimpleNamespace", "value.s")),
        (torch.nn.Linear(2, 2), ("the module Linear", "value.weight")),
        (torch.relu, ("the function relu", "a string or an enum")),
        (Holder, ("the class Holder", "a string or an enum")),
        ({Mode: 1.0}, ("an object of type dict", "Pass the values")),
        (slice(Config()), ("an object of type slice", "Pass the values")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_refusal_says_what_to_pass_instead(value: Any, words: tuple[str, ...]) -> None:
    compiled = thunder.jit(lambda x: scale(x, value), executors=[ex])
    with pytest.raises(thunder.core.errors.UnsupportedProgram) as error:
        compiled(torch.ones(2))
    assert all(word in str(error.value) for word in words), str(error.value)


def test_a_method_of_an_object_is_refused_and_its_values_can_be_passed() -> None:
    own = OperatorExecutor("argued_method")
    meta = lambda self, x: TensorProxy(like=x)  # noqa: E731
    own.register_operator("forward", meta=meta, fn=lambda self, x: x * self.weight, replaces=Model.forward)
    with pytest.raises(thunder.core.errors.UnsupportedOperator, match=r"the module Model as self"):
        thunder.jit(Model(), executors=[own])(torch.ones(2))


def test_a_call_without_an_argument_has_the_default_of_the_replaced_function() -> None:
    def shifted(x: torch.Tensor, by: float = 1.0, *, factor: Any = 2.0) -> torch.Tensor:
        return x * factor + by

    own = OperatorExecutor("argued_default")
    own.register_operator(
        "shifted",
        meta=lambda x, by=7.0, *, factor=9.0: TensorProxy(like=x),
        fn=lambda x, by, *, factor: x * factor + by,
        replaces=shifted,
    )
    compiled, x = thunder.jit(lambda x: shifted(x), executors=[own]), torch.ones(2)
    torch.testing.assert_close(compiled(x), shifted(x))
    shifted.__defaults__ = (4.0,)
    torch.testing.assert_close(compiled(x), shifted(x))
    shifted.__kwdefaults__["factor"] = torch.tensor([2.0, 3.0])
    torch.testing.assert_close(compiled(x), shifted(x))


def test_names_of_arguments_are_those_of_the_replaced_function() -> None:
    def shifted(x: torch.Tensor, by: float = 1.0, factor: float = 2.0) -> torch.Tensor:
        return x * factor + by

    own = OperatorExecutor("argued_names")
    own.register_operator(
        "shifted",
        meta=lambda a, b, c: TensorProxy(like=a),
        fn=lambda a, b, c: a * c + b,
        replaces=shifted,
    )
    x = torch.ones(2)
    for program in (lambda x: shifted(x=x, factor=5.0, by=3.0), lambda x: shifted(x, factor=5.0)):
        compiled = thunder.jit(program, executors=[own])
        torch.testing.assert_close(compiled(x), program(x))
        assert thunder.explain(compiled).rows[0].claimed_by == "argued_names"


class Styles(enum.Enum):
    PLAIN = Config()


class Labelled(float):
    pass


@pytest.mark.parametrize("value", [Styles.PLAIN, Labelled(2.0)], ids=["an enum of an object", "a number"])
def test_a_constant_that_holds_an_object_is_refused(value: Any) -> None:
    if isinstance(value, Labelled):
        value.label = Config()
    compiled = thunder.jit(lambda x: scale(x, value), executors=[ex])
    with pytest.raises(thunder.core.errors.UnsupportedOperator, match="as how"):
        compiled(torch.ones(2))


@pytest.mark.parametrize(
    "callable_object",
    [Model(), functools.partial(scale, how=2.0), Model().forward, functools.lru_cache(scale)],
    ids=["a module", "a partial", "a bound method", "a cached function"],
)
def test_a_callable_that_is_never_replaced_is_refused_by_replaces(callable_object: Any) -> None:
    own = OperatorExecutor("argued_callables")
    with pytest.raises(thunder.core.errors.RegistrationError, match="replaces= takes functions"):
        own.register_operator("f", meta=lambda x: TensorProxy(like=x), replaces=callable_object)


def test_an_executor_of_one_operator_may_run_an_object(request: pytest.FixtureRequest) -> None:
    kernel = functools.partial(scale, how=3.0)
    single = single_op_executor("argued_single", "triple", kernel, lambda x: TensorProxy(like=x))
    request.addfinalizer(lambda: deregister_executor(single))
    triple = single.opmap["triple"]
    compiled = thunder.jit(lambda x: triple(x), executors=[single])
    torch.testing.assert_close(compiled(torch.ones(2)), torch.full((2,), 3.0))
