"""Reports on torch's modules: each is collected and rendered, and shows the statements that run."""

from __future__ import annotations

import copy
import json
import re

import pytest
import torch

import thunder
from models.module_database import ENTRIES, samples
from sweeping import one_in
from thunder_report.collection import collect
from thunder_report.measurement import MeasureTransform
from thunder_report.rendering import render
from thunder_report.statements import statement_text
from thunder_transforms.observing import OBSERVER

#: lazy modules have no state before their first call; arguments of these are results, which are not copied
LEFT_OUT = {"nn.KLDivLoss", "nn.GaussianNLLLoss", "nn.CTCLoss"}
NAMES = [name for name in ENTRIES if "Lazy" not in name and name not in LEFT_OUT]


@pytest.mark.parametrize("name", one_in(12, NAMES))
def test_the_report_on_a_module_shows_the_statements_that_run(name: str) -> None:
    sample = next(samples(name, torch.float32, True), None)
    if sample is None:
        pytest.skip("torch has no sample")
    plain = thunder.jit(sample.made(), executors=["torch"])
    measured = thunder.jit(sample.made(), executors=["torch"], transforms=[MeasureTransform()])
    for compiled in (plain, measured):
        torch.manual_seed(0)
        result = compiled(*copy.deepcopy(sample.args), **copy.deepcopy(sample.kwargs))
        leaves = [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]
        sums = [x.sum() for x in leaves if x.requires_grad]
        if sums:
            torch.stack(sums).sum().backward()
    report = collect(plain, measured)
    for compiled, program in zip((plain, measured), report.programs, strict=True):
        entry = program.entries[0]
        shown = [entry.statements[n].text for n in entry.traces[0].stages[-1].statements]
        statements = thunder.last_traces(compiled)[-1].bound_symbols
        assert shown == [statement_text(bsym) for bsym in statements if OBSERVER not in bsym.tags]
    assert any(time is not None for time in report.programs[1].entries[0].measured["forward"])
    found = re.findall(r'<script type="application/json" id="\S+">(.*?)</script>', render(report), re.DOTALL)
    assert len(list(map(json.loads, found))) == 4
