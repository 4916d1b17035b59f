"""What attributes, class, identity, truth and numbers of an object of each type are: as in eager."""

from __future__ import annotations

import operator
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import pytest
import torch

import thunder
from sweeping import in_turn
from thunder.frontend.session_rules import HandlerTable, session_rules
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.plugins import get_manager


class Layer(torch.nn.Linear):
    factor = 2.0

    def method(self) -> float:
        return self.factor


class Plain:
    factor = 3.0


LAYER, PLAIN, VARIABLE, LOCAL = Layer(2, 2), Plain(), ContextVar("variable", default=1), threading.local()
GENERATOR, COMPILED = torch.Generator(), thunder.jit(lambda x: x + 1)

#: what a program has in its hands, made of a tensor of ones
OBJECTS: dict[str, Callable[[torch.Tensor], Any]] = {
    "tensor": lambda x: x,
    "computed tensor": lambda x: x + 1,
    "integer tensor": lambda x: (x + 1).sum().to(torch.int64),
    "truth tensor": lambda x: x.sum() > 1,
    "parameter": lambda x: LAYER.weight,
    "number": lambda x: x.sum().item(),
    "integer": lambda x: x.sum().to(torch.int64).item(),
    "truth": lambda x: (x.sum() > 1).item(),
    "size": lambda x: x.shape[0],
    "sizes": lambda x: x.shape,
    "module": lambda x: LAYER,
    "object": lambda x: PLAIN,
    "class": lambda x: Plain,
    "made object": lambda x: Plain(),
    "method": lambda x: LAYER.method,
    "tensor method": lambda x: x.sum,
    "generator": lambda x: GENERATOR,
    "variable": lambda x: VARIABLE,
    "thread": lambda x: LOCAL,
    "compiled": lambda x: COMPILED,
    "iterator": lambda x: map(abs, [1, 2]),
    "python module": lambda x: operator,
    "None": lambda x: None,
    "list": lambda x: [x],
}


def stores(o: Any) -> Any:
    o.not_there = 7
    return o.not_there


def deletes(o: Any) -> None:
    del o.not_there


def stores_and_deletes(o: Any) -> Any:
    o.not_there = 7
    del o.not_there
    return hasattr(o, "not_there")


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "class": lambda o: (type(o).__name__, o.__class__.__name__, isinstance(o, torch.Tensor)),
    "same": lambda o: (o is o, o is None, None is o, o is PLAIN, PLAIN is o, o in (None, PLAIN)),
    "lacks": lambda o: o.not_there,
    "has": lambda o: (hasattr(o, "shape"), hasattr(o, "real"), hasattr(o, "not_there"), hasattr(o, "factor")),
    "stores": stores,
    "deletes": deletes,
    "stores and deletes": stores_and_deletes,
    "truth": lambda o: (bool(o), not o, 1 if o else 2, operator.truth(o), o and 3),
    "int": int,
    "float": float,
    "complex": complex,
    "index": operator.index,
    "position": lambda o: [1, 2, 3, 4, 5][o],
}


def told(run: Callable[[Any], Any], value: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    def program(x: torch.Tensor) -> Any:
        try:
            return run(value(x))
        except (AttributeError, TypeError, ValueError, RuntimeError, IndexError) as error:
            return type(error).__name__

    return program


def plain(result: Any) -> Any:
    """Return a result with tensors as lists, and the type of each part."""
    if isinstance(result, tuple | list):
        return type(result), [plain(part) for part in result]
    return type(result), result.tolist() if isinstance(result, torch.Tensor) else result


def forget_attributes() -> None:
    for owner in (Plain, LAYER, LAYER.weight, PLAIN, LOCAL, COMPILED, operator):
        if hasattr(owner, "not_there"):
            del owner.not_there


@pytest.mark.parametrize(("kind", "operation"), in_turn(OBJECTS, list(OPERATIONS)))
def test_an_object_is_to_the_program_what_it_is_in_eager(kind: str, operation: str) -> None:
    program = told(OPERATIONS[operation], OBJECTS[kind])
    compiled = thunder.jit(program, executors=["torch"])
    x = torch.ones(2)
    forget_attributes()
    expected = plain(program(x))
    forget_attributes()
    assert plain(compiled(x)) == expected


def fails(self: Any, *args: Any) -> Any:
    raise AssertionError("the session answers, and not the proxy")


@pytest.mark.parametrize("name", ["__bool__", "__int__", "__float__"])
def test_the_program_asks_the_session_and_not_the_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> Any:
        convert = {"__bool__": bool, "__int__": int, "__float__": float}[name]
        number = x.sum().item()
        return convert(x.sum()), convert(number), 1 if name != "__bool__" or x.sum() > 0 else 2

    for cls in (TensorProxy, NumberProxy):
        monkeypatch.setattr(cls, name, fails)
    x = torch.ones(3)
    assert thunder.jit(program, executors=["torch"])(x) == program(x)


def test_a_derived_class_has_the_row_of_its_first_base_with_one() -> None:
    handlers = session_rules(get_manager()).handlers
    table = HandlerTable(handlers)
    for _ in range(50):  # classes of which some are gone when the next is made

        class Derived(Layer): ...

        assert table[Derived] is handlers[torch.nn.Module]
        assert table[type("Other", (), {})].load is None


def test_classes_that_a_program_makes_in_a_loop_are_told_apart() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        for i in range(4):
            cls = type(f"C{i}", (Plain,), {"factor": float(i)})
            x = x + cls().factor * (1 if type(cls()) is cls else 2)
            del cls
        return x

    x = torch.ones(2)
    assert torch.equal(thunder.jit(program, executors=["torch"])(x), program(x))
