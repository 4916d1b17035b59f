"""Errors of guards: an exception in a check is the cause of the internal error that reports it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import thunder
from thunder.base.errors import InternalError
from thunder.frontend.guard_writer import GuardWriter

SCALE = 2.0

write_condition = GuardWriter.fail_if


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


def with_condition(check: Callable[[], object]) -> Callable[..., None]:
    """Return a method that adds a condition to each check, which calls a function."""

    def fail_if(self: GuardWriter, *conditions: str) -> None:
        write_condition(self, *conditions, f"{self.constant(check)}()")

    return fail_if


def test_the_exception_of_a_check_of_a_new_entry_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GuardWriter, "fail_if", with_condition(lambda: [][0]))
    with pytest.raises(InternalError, match="guards of a new entry") as raised:
        thunder.jit(scaled)(torch.ones(2))
    assert isinstance(raised.value.__cause__, IndexError)


def test_the_exception_of_a_check_of_an_old_entry_is_the_reason_of_the_recompile() -> None:
    broken = False
    compiled = thunder.jit(scaled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GuardWriter, "fail_if", with_condition(lambda: broken and [][0]))
        compiled(torch.ones(2))
    broken = True
    assert torch.equal(compiled(torch.ones(2)), scaled(torch.ones(2)))
    (reason,) = thunder.compile_stats(compiled).last_recompile_reasons
    assert isinstance(reason.found, IndexError)
