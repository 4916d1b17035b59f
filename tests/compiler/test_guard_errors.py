"""Errors of guards: an exception in a check is the cause of the internal error that reports it."""

from __future__ import annotations

import pytest
import torch

import thunder
from thunder.base.errors import InternalError
from thunder.frontend.guards import Writer

SCALE = 2.0


def scaled(x: torch.Tensor) -> torch.Tensor:
    return x * SCALE


def test_the_exception_of_a_check_of_a_new_entry_is_the_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Writer, "plain_condition", lambda self, fact: "(1).missing")
    with pytest.raises(InternalError, match="guards of a new entry") as raised:
        thunder.jit(scaled)(torch.ones(2))
    assert isinstance(raised.value.__cause__, AttributeError)


def test_the_exception_of_a_check_of_an_old_entry_is_the_cause() -> None:
    broken = False

    def condition(self: Writer, fact: object) -> str:
        return f"{self.constant(lambda: [][0] if broken else False)}()"

    compiled = thunder.jit(scaled)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "plain_condition", condition)
        compiled(torch.ones(2))
    broken = True
    with pytest.raises(InternalError, match="every fact that it was generated from holds") as raised:
        compiled(torch.ones(2))
    assert isinstance(raised.value.__cause__, IndexError)
