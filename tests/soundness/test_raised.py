"""Exceptions of the program's own, known while it is traced: what they hold, say, and leave behind."""

from __future__ import annotations

import contextlib
import typing

import pytest
import torch

import thunder


class Rejected(Exception):
    def __init__(self, code, tensor):
        super().__init__(f"code {code}")
        self.code, self.tensor = code, tensor


def test_tensors_in_an_exception_are_those_of_the_call():
    def rejects(x, code):
        if code == 1:
            raise Rejected(code, x * 2)
        if code == 2:
            raise ValueError("two", [x + 1])
        try:
            raise Rejected(code, x * 4)
        except Rejected as error:
            raise KeyError("from another") from error

    compiled = thunder.jit(rejects)
    x = torch.arange(3.0)
    for _ in range(2):
        with pytest.raises(Rejected, match="code 1") as first:
            compiled(x, 1)
        assert torch.equal(first.value.tensor, x * 2)
        with pytest.raises(ValueError, match="two") as second:
            compiled(x, 2)
        assert torch.equal(second.value.args[1][0], x + 1)
        with pytest.raises(KeyError) as third:
            compiled(x, 3)
        assert torch.equal(third.value.__cause__.tensor, x * 4)


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, BaseException])
def test_an_exit_has_the_effects_before_it(kind, capsys):
    counts = [0]

    def leaves(x):
        counts[0] += 1
        try:
            raise kind(3)
        finally:
            print("leaving")

    compiled = thunder.jit(leaves)
    for call in (1, 2):
        with pytest.raises(kind) as caught:
            compiled(torch.ones(2))
        assert caught.value.args == (3,)
        assert counts == [call]
        assert capsys.readouterr().out == "leaving\n"


class _Declines:
    def __add__(self, other):
        return NotImplemented

    __radd__ = __add__


@pytest.mark.parametrize("wrong", [lambda x: x(), lambda x: x + _Declines(), lambda x: _Declines() + x])
def test_a_type_error_names_torchs_class(wrong):
    def handled(x):
        try:
            return wrong(x)
        except TypeError as error:
            return str(error)

    x = torch.ones(2)
    assert thunder.jit(handled)(x) == handled(x)
    with pytest.raises(TypeError) as theirs:
        wrong(x)
    with pytest.raises(TypeError) as ours:
        thunder.jit(wrong)(x)
    assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("wide", [5, 2])
def test_a_hook_that_is_always_called_is_called_where_a_part_raises(wide):
    def seen_of(compile):
        seen = []
        model = torch.nn.Sequential(torch.nn.Linear(2, 2))
        model[0].register_forward_hook(lambda m, args, out: seen.append(out is None), always_call=True)
        compiled = compile(model)
        for columns in (wide, 2, wide):
            with contextlib.suppress(RuntimeError):
                compiled(torch.ones(1, columns))
        return seen

    assert seen_of(thunder.jit) == seen_of(lambda model: model)


def test_a_global_hook_that_is_always_called_is_called_where_a_part_raises():
    def seen_of(model):
        seen = []

        def hook(module, args, out):
            seen.append((module.__class__.__name__, out is None))

        handle = torch.nn.modules.module.register_module_forward_hook(hook, always_call=True)
        try:
            for columns in (5, 2, 5):
                with contextlib.suppress(RuntimeError):
                    model(torch.ones(1, columns))
        finally:
            handle.remove()
        return seen

    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    assert seen_of(thunder.jit(model)) == seen_of(model)


def test_a_program_may_name_types():
    def casts(x, k):
        return typing.cast(typing.Optional[torch.Tensor], x) * k  # noqa: UP045 - its cache is what is tested

    compiled = thunder.jit(casts)
    for k in (1, 2, 1):
        assert torch.equal(compiled(torch.ones(2), k), casts(torch.ones(2), k))


def test_an_attribute_error_has_the_tensor():
    def handled(x):
        try:
            return x.nothing
        except AttributeError as error:
            return error.name, error.obj * 2

    x = torch.ones(2)
    name, doubled = thunder.jit(handled)(x)
    assert name == "nothing"
    assert torch.equal(doubled, x * 2)
    with pytest.raises(AttributeError) as caught:
        thunder.jit(lambda x: x.nothing)(x)
    assert caught.value.obj is x


def test_a_handler_sees_torchs_error_of_a_device_that_there_is_not():
    def handled(x):
        try:
            return x.to("nowhere")
        except RuntimeError as error:
            return str(error)

    assert thunder.jit(handled)(torch.ones(2)) == handled(torch.ones(2))
