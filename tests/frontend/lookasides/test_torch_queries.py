"""What a program asks of torch and of the machine, and small objects of Python that it meets on the way."""

from __future__ import annotations

import abc
import re
import typing

import pytest
import torch

import thunder

T = typing.TypeVar("T")
NUMBERED = re.compile(r"layer(\d)")


def asked(question):
    """A program that asks, and what eager answers."""

    def program(x):
        return x + 1, question()

    return program


@pytest.mark.parametrize(
    "question",
    [
        lambda: torch.cuda.is_available(),
        lambda: torch.cuda.device_count(),
        lambda: torch.accelerator.is_available(),
        lambda: torch.accelerator.device_count(),
        lambda: str(torch.accelerator.current_accelerator()),
        lambda: torch.backends.mps.is_available(),
        lambda: torch.backends.cudnn.version(),
        lambda: torch.backends.cudnn.deterministic,
        lambda: torch.backends.cuda.flash_sdp_enabled(),
        lambda: torch.are_deterministic_algorithms_enabled(),
        lambda: torch.get_float32_matmul_precision(),
        lambda: str(torch.get_default_device()),
        lambda: torch.distributed.is_available() and torch.distributed.is_initialized(),
        lambda: torch.__version__,
        lambda: torch.__version__ >= "2.0",
        lambda: tuple(map(int, torch.__version__.split("+")[0].split("."))),
    ],
)
def test_a_question_has_eagers_answer_and_one_compile(question):
    compiled = thunder.jit(asked(question))
    for _ in range(2):
        assert compiled(torch.ones(2))[1] == question()
    assert thunder.cache_misses(compiled) == 1


def test_the_answer_is_asked_for_at_each_call():
    compiled = thunder.jit(asked(lambda: torch.get_float32_matmul_precision()))
    before = torch.get_float32_matmul_precision()
    try:
        for precision in ("high", "highest", "high"):
            torch.set_float32_matmul_precision(precision)
            assert compiled(torch.ones(2))[1] == precision
    finally:
        torch.set_float32_matmul_precision(before)
    assert thunder.cache_misses(compiled) == 2


def test_a_count_of_devices_that_changes_is_seen(monkeypatch):
    compiled = thunder.jit(asked(lambda: torch.cuda.device_count()))
    found = compiled(torch.ones(2))[1]
    monkeypatch.setattr(torch.cuda, "device_count", lambda: found + 3)
    assert compiled(torch.ones(2))[1] == found + 3


def scaled_by_number(x, name):
    found = NUMBERED.fullmatch(name)
    return x * int(found.group(1)) if found else x


def test_a_pattern_is_used_and_another_one_at_its_place_is_seen(monkeypatch):
    compiled, x = thunder.jit(scaled_by_number), torch.ones(2)
    for name in ("layer3", "layer4", "head"):
        assert torch.equal(compiled(x, name), scaled_by_number(x, name))
    monkeypatch.setitem(scaled_by_number.__globals__, "NUMBERED", re.compile(r"la(\d)yer"))
    for name in ("layer3", "la5yer"):
        assert torch.equal(compiled(x, name), scaled_by_number(x, name))


def test_type_variables_are_seen_by_casts():
    def same(x: T) -> T:
        return typing.cast(T, x)

    assert torch.equal(thunder.jit(same)(torch.ones(2)), torch.ones(2))


class Bare:
    """A class that says nothing of how it is made."""

    def plus(self, x):
        self.seen = x
        return self.seen + 1


class Base(abc.ABC):
    """A class of which no instance can be made."""

    @abc.abstractmethod
    def plus(self, x): ...


class Inheriting(Base):
    """One of which there can be."""

    def plus(self, x):
        return x + 2


@pytest.mark.parametrize("cls", [Bare, Inheriting])
def test_an_instance_of_a_class_without_init_is_made(cls):
    def program(x):
        return cls().plus(x)

    compiled = thunder.jit(program)
    assert torch.equal(compiled(torch.ones(2)), program(torch.ones(2)))


@pytest.mark.parametrize(("cls", "args"), [(Base, ()), (Bare, (3,))])
def test_an_instance_that_eager_does_not_make_is_not_made(cls, args):
    def program(x):
        cls(*args)
        return x

    with pytest.raises(TypeError) as expected:
        program(torch.ones(2))
    with pytest.raises(TypeError, match=re.escape(str(expected.value))):
        thunder.jit(program)(torch.ones(2))


def test_an_init_that_a_class_gains_later_is_seen(monkeypatch):
    class Gaining:
        start = 0

    def program(x):
        return x + Gaining().start

    compiled, x = thunder.jit(program), torch.ones(2)
    assert torch.equal(compiled(x), x)

    def __init__(self):
        self.start = 5

    monkeypatch.setattr(Gaining, "__init__", __init__)
    assert torch.equal(compiled(x), x + 5)


_MARKED = torch.randn(3, dtype=torch.complex64)


@pytest.mark.parametrize(
    "same",
    [
        lambda x: x.contiguous() is x,
        lambda x: x is x.contiguous().contiguous(),
        lambda x: x.contiguous() is x.contiguous(),
        lambda x: x.resolve_neg() is x,
        lambda x: x.resolve_neg().contiguous() is x.resolve_neg(),
        lambda x: x.resolve_conj() is x,
        lambda x: torch.broadcast_tensors(x)[0] is x,
        lambda x: [t is x for t in torch.broadcast_tensors(x, torch.ones(2, 3))],
        lambda x: x.ravel() is x,
        lambda x: x.flatten() is x,
    ],
)
@pytest.mark.parametrize(
    "x",
    [
        torch.ones(3),
        torch.ones(6)[::2],
        torch.ones(2, 3),
        torch.ones(3, 2).t(),
        _MARKED,
        _MARKED.conj(),
        _MARKED.conj().imag,
    ],
    ids=["one", "gaps", "two", "transposed", "complex", "conjugate", "negative"],
)
def test_a_function_that_may_return_its_argument_is_compared_as_eager_does(same, x):
    program = thunder.jit(same)
    program(torch.ones(x.shape, dtype=x.dtype))  # what holds for one tensor is a fact that is checked
    assert program(x) == same(x)
