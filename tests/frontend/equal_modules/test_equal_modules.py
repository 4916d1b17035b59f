"""Modules that equal one which was read before are copied: as in eager, and as if each had been read."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

import thunder
from frontend.equal_modules.equal_blocks import CHANGES, PROGRAMS, WIDTH, stack
from sweeping import in_turn, one_in
from thunder.base.errors import NeverCalled
from thunder.core.session import COMPUTES, LookasideTable, SessionRules
from thunder.frontend.equal_modules.equal_calls import EqualModules
from thunder.plugins import get_manager, hookimpl


@pytest.fixture
def read_all(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Returns a function after which every module is read."""
    return lambda: monkeypatch.setattr(EqualModules, "_may_copy", lambda self, module: False)


def inputs() -> Tensor:
    return torch.linspace(-1, 1, 3 * WIDTH).reshape(3, WIDTH)


def texts_of(fn: Any) -> list[str]:
    """Return the texts of the program that was compiled last, without times; of an error there are none."""
    try:
        traces = (thunder.last_traces(fn)[0], thunder.last_prologue_traces(fn)[-1])
    except NeverCalled:
        return []
    return [re.sub(r"\(took [^)]*\)|took [\d.]+ \w+", "", str(trace)) for trace in traces]


def outcome(run: Callable[[Tensor], Any], model: Any) -> Any:
    """Return results and gradients of two calls, and the buffers afterwards; or the error."""
    found: list[Any] = []
    for _ in range(2):
        x = inputs().requires_grad_()
        try:
            result = run(x)
        except RuntimeError:
            found.append("an error")
            continue
        leaves = [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        differentiable = [leaf.sum() for leaf in leaves if leaf.requires_grad]
        if differentiable:
            sum(differentiable).backward(retain_graph=True)  # type: ignore[union-attr]
        found += [*[leaf.detach().clone() for leaf in leaves], x.grad]
        for parameter in model.parameters():
            found.append(None if parameter.grad is None else parameter.grad.clone())
            parameter.grad = None
    return [*found, *[b.clone() for b in model.buffers()]]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, Tensor):
            torch.testing.assert_close(a, b)
        else:
            assert a == b


def test_equal_blocks_are_read_once():
    counts = []
    for count in (2, 8):
        jitted = thunder.jit(stack(count))
        jitted(inputs())
        counts.append(thunder.last_interpreted_instructions(jitted))
    few, many = counts
    assert many - few < 6 * 12  # the loop


def test_layers_of_two_kinds_that_alternate_are_read_once_each():
    counts = []
    for count in (4, 12):
        model = stack(count)
        for block in model.blocks[::2]:
            CHANGES["a_number"](model, block)
        jitted = thunder.jit(model)
        torch.testing.assert_close(jitted(inputs()), model(inputs()))
        counts.append(thunder.last_interpreted_instructions(jitted))
    few, many = counts
    assert many - few < 8 * 12  # the loop


def test_blocks_with_symbolic_sizes_are_read_once(read_all: Callable[[], None]):
    few, many, read = (thunder.jit(stack(n), cache="symbolic values") for n in (2, 8, 8))
    few(inputs()), many(inputs())
    found, expected = map(thunder.last_interpreted_instructions, (many, few))
    assert found - expected < 6 * 12  # the loop
    longer = torch.linspace(-1, 1, 5 * WIDTH).reshape(5, WIDTH)
    torch.testing.assert_close(many(longer), stack(8)(longer))
    assert thunder.cache_misses(many) == 1
    read_all()
    read(inputs())
    assert texts_of(many) == texts_of(read)


def root(x: Tensor) -> Tensor:
    return x / math.sqrt(4)


def test_blocks_that_call_functions_of_numbers_are_read_once():
    counts = []
    for count in (2, 8):
        model = stack(count)
        for block in model.blocks:
            block.inner.activation = root
        jitted = thunder.jit(model)
        torch.testing.assert_close(jitted(inputs()), model(inputs()))
        counts.append(thunder.last_interpreted_instructions(jitted))
    few, many = counts
    assert many - few < 6 * 12  # the loop


def halved(x: Tensor) -> Tensor:
    return x / 2


@pytest.mark.parametrize("only_reads", [True, False])
def test_blocks_that_call_a_librarys_function_are_read_once_if_its_rule_only_reads(only_reads: bool):
    table = LookasideTable(COMPUTES, only_reads=only_reads)
    table.lookaside(halved)(lambda session, args, kwargs: session.call(torch.mul, (*args, 0.5), {}))

    class Rules:
        @hookimpl
        def thunder_session_rules(self) -> Any:
            return [SessionRules("acme", lookasides=table)]

    counts = []
    with get_manager().temporary(Rules(), "acme"):
        for count in (2, 8):
            model = stack(count)
            for block in model.blocks:
                block.inner.activation = halved
            jitted = thunder.jit(model)
            torch.testing.assert_close(jitted(inputs()), model(inputs()))
            counts.append(thunder.last_interpreted_instructions(jitted))
    few, many = counts
    assert (many - few < 6 * 12) == only_reads


@pytest.mark.parametrize(("name", "position"), in_turn(CHANGES, [1, 0, 3]))
def test_a_block_that_differs(name: str, position: int, read_all: Callable[[], None]):
    models = [stack() for _ in range(3)]
    for model in models:
        RemovableHandle.next_id = 0  # keys of hooks, which guards compare
        CHANGES[name](model, model.blocks[position])
    jitted, read = thunder.jit(models[0]), thunder.jit(models[1])
    found, expected = outcome(jitted, models[0]), outcome(models[2], models[2])
    assert_same(found, expected)
    read_all()
    assert_same(outcome(read, models[1]), expected)
    assert texts_of(jitted) == texts_of(read)


@pytest.mark.parametrize("name", one_in(2, PROGRAMS, start=1))  # tests/autograd/test_equal_calls.py: others
def test_a_program_that_does_more_than_read(name: str, read_all: Callable[[], None]):
    models = [stack() for _ in range(3)]
    programs = [PROGRAMS[name](model) for model in models]
    jitted, read = map(thunder.jit, programs[:2])
    found, expected = outcome(jitted, models[0]), outcome(programs[2], models[2])
    assert_same(found, expected)
    read_all()
    assert_same(outcome(read, models[1]), expected)
    # the prologue may check more: what was asked of the first block outside of its call is asked of all
    assert texts_of(jitted)[:1] == texts_of(read)[:1]


@pytest.mark.parametrize("name", one_in(8, [name for name in CHANGES if name != "nothing"]))
def test_a_change_of_a_block_that_was_copied_is_noticed(name: str):
    model, eager = stack(), stack()
    jitted = thunder.jit(model)
    jitted(inputs())
    for changed in (model, eager):
        CHANGES[name](changed, changed.blocks[2])
    assert_same(outcome(jitted, model), outcome(eager, eager))
