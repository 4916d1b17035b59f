"""`Transform.unchanged`: the tensors that a transform could not change are in the ledger."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import thunder
from thunder.extend import Refusal


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
