"""Signatures, hashes, pickles, generic functions and classes that programs ask about."""

import abc
import collections.abc
import dataclasses
import functools
import inspect
import pickle
import sys
import threading
import types
import typing
from typing import Any

import pytest
import torch

import thunder

X = torch.arange(3.0)


def function(a, b=1, *, c: int = 2):
    return a


class Base(abc.ABC):
    @abc.abstractmethod
    def go(self, x): ...


class Impl(Base):
    def __init__(self, scale=2.0):
        self.scale = scale

    def go(self, x):
        return x * self.scale


@typing.runtime_checkable
class Goes(typing.Protocol):
    def go(self, x): ...


@functools.singledispatch
def kind(value):
    return 1.0


@kind.register
def _(value: int):
    return 2.0


@kind.register
def _(value: torch.Tensor):
    return 3.0


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * len(inspect.signature(function).parameters),
        lambda x: x * len(inspect.signature(functools.partial(function, 1)).parameters),
        lambda x: x * len(inspect.signature(functools.wraps(function)(lambda *a: 1)).parameters),
        lambda x: x * len(inspect.signature(Impl).parameters),
        lambda x: x * len(inspect.signature(Impl().go).parameters),
        lambda x: x * len(inspect.signature(object.__init__).parameters),
        lambda x: x * len(inspect.signature(len).parameters),
        lambda x: x * len(inspect.getfullargspec(function).args),
        lambda x: x * len(typing.get_type_hints(function)),
        lambda x: x * {typing.Optional[int]: 2.0, list[int]: 3.0}[list[int]],  # noqa: UP045
        lambda x: x * (hash((1, "a", None)) == hash((1, "a", None))),
        lambda x: x * len(pickle.dumps({"a": [1, 2.0, (None, "b")]})),
        lambda x: x * pickle.loads(pickle.dumps({"a": 2}))["a"],
        lambda x: x * isinstance(Impl(), Goes) * ("go" in Impl.__dict__) * ("go" in vars(Impl)),
        lambda x: x * kind(1) + kind("a") + kind(x),
    ],
)
def test_programs_that_ask_about_python_are_as_in_eager(program):
    compiled = thunder.jit(program)
    for _ in range(2):
        assert torch.equal(compiled(X), program(X))
    assert thunder.cache_misses(compiled) == 1


def test_a_signature_depends_on_the_function_that_is_there(monkeypatch):
    program = lambda x: x * len(inspect.signature(Impl).parameters)  # noqa: E731
    compiled = thunder.jit(program)
    assert torch.equal(compiled(X), X)
    monkeypatch.setattr(Impl, "__init__", lambda self, a, b: None)
    assert torch.equal(compiled(X), X * 2)


def test_another_implementation_of_a_generic_function_is_noticed():
    @functools.singledispatch
    def generic(value):
        return 1.0

    compiled = thunder.jit(lambda x: x * generic(2))
    assert torch.equal(compiled(X), X)
    generic.register(int, lambda value: 5.0)
    assert torch.equal(compiled(X), X * 5)


def test_another_thread_has_another_compiled_program():
    table = {threading.get_ident(): 2.0}
    compiled = thunder.jit(lambda x: x * table.get(threading.get_ident(), 7.0))
    results = [compiled(X)]
    thread = threading.Thread(target=lambda: results.append(compiled(X)))
    thread.start()
    thread.join()
    assert torch.equal(results[0], X * 2)
    assert torch.equal(results[1], X * 7)


class Scale(torch.nn.Module):
    def forward(self, x, factor=2.0):
        return x * factor


class Call:
    def __call__(self, x, *, power=2):
        return x**power


class Described(Call):
    __signature__ = inspect.signature(lambda a, b: a)


def test_the_signature_of_an_object_is_that_of_its_call():
    def program(x, fn):
        return x * len(inspect.signature(fn).parameters), list(inspect.signature(fn).parameters)

    compiled = thunder.jit(program)
    for fn in (Scale(), Call(), torch.nn.Sequential(torch.nn.Linear(1, 1))):
        result, names = compiled(X, fn)
        assert torch.equal(result, program(X, fn)[0])
        assert names == program(X, fn)[1]
    wrapped = Call()
    wrapped.__wrapped__ = lambda first: first
    for fn in (wrapped, Described()):
        with pytest.raises(thunder.UnsupportedProgram, match=r"inspect\.signature"):
            compiled(X, fn)


def test_a_signature_is_read_again_when_the_class_has_another_call(monkeypatch):
    compiled = thunder.jit(lambda x, fn: x * len(inspect.signature(fn).parameters))
    call = Call()
    assert torch.equal(compiled(X, call), X * 2)
    monkeypatch.setattr(Call, "__call__", lambda self, x: x)
    assert torch.equal(compiled(X, call), X)
    call.__wrapped__ = None  # ``inspect`` follows it
    with pytest.raises(thunder.UnsupportedProgram, match=r"inspect\.signature"):
        compiled(X, call)


@dataclasses.dataclass
class Annotated:
    width: int = 2
    scale: "float | None" = None
    _extra: typing.ClassVar[int] = 1


def annotated(x: "torch.Tensor", options: "Annotated") -> "int": ...


def test_type_hints_are_read_and_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor, options: Annotated) -> object:
        hints = typing.get_type_hints(type(options))
        own = typing.get_type_hints(annotated, include_extras=True)
        hints["more"] = int
        return x * len(hints) + (own["return"] is int) * 10 + (hints["width"] is int)

    compiled, x = thunder.jit(program), torch.ones(2)
    for _ in range(2):
        assert torch.equal(compiled(x, Annotated()), program(x, Annotated()))
    assert thunder.cache_misses(compiled) == 1
    monkeypatch.setitem(Annotated.__annotations__, "width", "float")
    assert torch.equal(compiled(x, Annotated()), program(x, Annotated()))
    monkeypatch.setitem(annotated.__annotations__, "return", "str")
    assert torch.equal(compiled(x, Annotated()), program(x, Annotated()))
    assert thunder.cache_misses(compiled) == 3


# -- abstract base classes -----------------------------------------------------------------------------------


class Listed(abc.ABC):  # noqa: B024
    """A class with which others are registered."""


class Part(Listed):
    """A subclass, with which others are registered too."""


class Hooked(abc.ABC):  # noqa: B024
    """A class whose answers are those of its own code."""

    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return NotImplemented


@pytest.mark.parametrize("base", [Listed, Hooked])
def test_answers_about_abstract_classes_follow_registrations(base: Any) -> None:
    def program(x: torch.Tensor, value: Any) -> torch.Tensor:
        return x * (2 if isinstance(value, base) else 3) * (5 if issubclass(type(value), base) else 7)

    plain, later = type("Plain", (), {}), type("Later", (), {})
    compiled = thunder.jit(program)
    for register in (None, plain, None, later):
        if register is not None:
            (Part if base is Listed else base).register(register)
        for value in (plain(), later(), plain()):
            assert torch.equal(compiled(X, value), program(X, value))


@typing.runtime_checkable
class Named(typing.Protocol):
    """A protocol with a method, which an object may have and its class lacks."""

    def name(self): ...


def test_a_protocol_asks_the_object() -> None:
    def program(x: torch.Tensor, value: Any) -> torch.Tensor:
        return x * (2 if isinstance(value, Named) else 3)

    compiled, value = thunder.jit(program), types.SimpleNamespace()
    for _ in range(2):
        assert torch.equal(compiled(X, value), program(X, value))
        value.name = str


@typing.runtime_checkable
class Labelled(typing.Protocol):
    """A protocol with a member that is data."""

    name: str


@typing.runtime_checkable
class LabelledAndNamed(Labelled, Named, typing.Protocol):
    """A protocol of both kinds of members."""


class Slotted:
    __slots__ = ("name",)


class Computed:
    @property
    def name(self) -> str:
        return "x"


class Answering:
    def __getattr__(self, attribute: str) -> Any:
        if attribute == "name":
            return str
        raise AttributeError(attribute)


def _slotted() -> Slotted:
    filled = Slotted()
    filled.name = "x"
    return filled


def _matched(value: Any) -> int:
    match value:
        case Labelled():
            return 1
        case _:
            return 2


QUESTIONS: dict[str, Any] = {
    "isinstance": lambda value: isinstance(value, Labelled),
    "of both kinds": lambda value: isinstance(value, LabelledAndNamed),
    "in a tuple": lambda value: isinstance(value, (int, Labelled)),
    "in a union": lambda value: isinstance(value, int | Labelled | None),
    "in typing's union": lambda value: isinstance(value, typing.Optional[Named]),  # noqa: UP045
    "matched": _matched,
    "mapped": lambda value: list(map(isinstance, [value, 3], [Labelled, Labelled])),
    "its method": lambda value: Labelled.__instancecheck__(value),
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_a_protocol_with_data_asks_the_object(question: str) -> None:
    def program(x: torch.Tensor, value: Any) -> Any:
        return QUESTIONS[question](value), x * 2

    compiled = thunder.jit(program, recompile_limit=None)
    values = [
        _slotted(),
        Slotted(),
        Computed(),
        Answering(),
        types.SimpleNamespace(),
        3,
        None,
        [1],
        X,
        Slotted,
    ]
    values += [types.SimpleNamespace(name="x"), torch.nn.Linear(1, 1), *values]
    for value in values:
        assert compiled(X, value)[0] == program(X, value)[0]


@pytest.mark.parametrize(
    "base",
    # of others a library may derive a protocol, whose code would answer
    [collections.abc.Mapping, collections.abc.Sequence],
)
def test_a_registration_elsewhere_is_no_reason_to_compile_for_the_kinds_of_containers(base: Any) -> None:
    compiled = thunder.jit(lambda x, value: x * (2 if isinstance(value, base) else 3))
    for _ in range(3):
        assert torch.equal(compiled(X, [1]), X * (2 if isinstance([1], base) else 3))
        Hooked.register(type("Other", (), {}))
    assert thunder.cache_misses(compiled) == 1


def test_a_registration_elsewhere_is_no_reason_for_a_compile() -> None:
    compiled = thunder.jit(lambda x, value: x * (2 if isinstance(value, Listed) else 3))
    for _ in range(3):
        compiled(X, 1.0)
        Hooked.register(type("Other", (), {}))
    assert thunder.cache_misses(compiled) == 1


def test_a_protocol_that_is_not_for_run_time_is_no_answer_for_its_base() -> None:
    class Filled(collections.abc.Sized, typing.Protocol):
        def __len__(self) -> int: ...

    class Mine:
        pass

    class Theirs:
        pass

    def program(x: torch.Tensor, value: Any) -> torch.Tensor:
        return x * (2 if isinstance(value, typing.Sized) else 3)

    assert torch.equal(thunder.jit(program)(X, Mine()), program(X, Theirs()))
    assert issubclass(Filled, collections.abc.Sized)


LEVEL = 2.0


@pytest.mark.parametrize("read", [lambda: globals()["LEVEL"], lambda: sys._getframe().f_globals["LEVEL"]])
def test_a_global_that_is_read_by_its_dictionary_is_guarded(read, monkeypatch):
    compiled = thunder.jit(lambda x: x * read())
    for level in (2.0, 3.0, 2.0):
        monkeypatch.setitem(globals(), "LEVEL", level)
        assert compiled(X).tolist() == (X * level).tolist()
    assert thunder.cache_misses(compiled) == 2
