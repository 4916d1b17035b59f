"""`Transform.unchanged`: the tensors that a transform could not change are in the ledger."""

from __future__ import annotations

import json
import warnings

import pytest
import torch
from torch import nn

import thunder
from thunder.core.errors import ThunderWarning
from thunder.extend import OperatorExecutor, Refusal


class Picky(thunder.Transform):
    """Refuses a weight."""

    def unchanged(self):
        return {"weight": Refusal("shape", "takes widths that 8 divides", width=3)}


def test_the_ledger_lists_them_with_their_reasons():
    compiled = thunder.jit(nn.Linear(3, 2), transforms=[Picky()])
    compiled(torch.ones(1, 3))
    explanation = thunder.explain(compiled)
    (tensor,) = explanation.unchanged
    assert (tensor.transform, tensor.name, tensor.code, tensor.facts["width"]) == (
        "Picky",
        "weight",
        "shape",
        3,
    )
    line = "unchanged by Picky: weight: takes widths that 8 divides (width=3)"
    assert str(explanation).splitlines()[-1] == line
    assert json.loads(explanation.to_json())["unchanged"][0]["message"] == "takes widths that 8 divides"
    assert thunder.plan(nn.Linear(3, 2), torch.ones(1, 3), transforms=[Picky()]).explain().unchanged == (
        tensor,
    )


def test_a_hook_that_returns_something_else_is_named():
    picky = type("Picky", (thunder.Transform,), {"unchanged": lambda self: ["weight"]})
    compiled = thunder.jit(nn.Linear(3, 2), transforms=[picky()])
    compiled(torch.ones(1, 3))
    with pytest.raises(thunder.PluginError, match=r"Picky\.unchanged returned"):
        thunder.explain(compiled)


class Idle(thunder.Transform):
    """Says that it does nothing."""

    answer: object = Refusal("device", "needs a device of its own", device="acme")

    def no_effect(self):
        return self.answer


def test_a_transform_without_effect_is_in_the_ledger_and_warns_once():
    compiled = thunder.jit(nn.Linear(3, 2), transforms=[Idle()])
    with pytest.warns(ThunderWarning, match="Idle has no effect: needs a device of its own .device=acme."):
        compiled(torch.ones(1, 3))
    with warnings.catch_warnings(action="error"):
        thunder.jit(nn.Linear(3, 2), transforms=[Idle()])(torch.ones(1, 3))
    explanation = thunder.explain(compiled)
    assert str(explanation).splitlines()[-1] == "no effect: Idle: needs a device of its own (device=acme)"
    assert json.loads(explanation.to_json())["idle"][0]["code"] == "device"


def test_a_wrong_answer_to_no_effect_is_an_error_with_the_transform():
    transform = Idle()
    transform.answer = "no device"
    with pytest.raises(thunder.PluginError, match=r"Idle\.no_effect returned"):
        thunder.jit(nn.Linear(3, 2), transforms=[transform])(torch.ones(1, 3))


def test_an_executor_without_effect_is_in_the_ledger_and_warns():
    class Without(OperatorExecutor):
        def no_effect(self):
            return Refusal("compiler", "there is no compiler for acme")

    compiled = thunder.jit(torch.sin, executors=[Without("without")])
    with pytest.warns(ThunderWarning, match="without has no effect: there is no compiler"):
        compiled(torch.ones(1))
    assert "no effect: without: there is no compiler for acme" in str(thunder.explain(compiled))
