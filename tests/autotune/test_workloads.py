"""Models tuned with TorchInductor and the real timer: results are eager's, and no right region is refused.

Placements that are chosen at random compute the same: whichever executor runs a call, the program is right.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch

import thunder
import thunder_inductor
from sweeping import MARK
from thunder.core.transforms import add_transform
from thunder.extend import cut_positions
from thunder.plugins import get_manager
from thunder_autotune import Entries, Entry, autotune
from thunder_autotune.candidates import candidates_of
from thunder_autotune.placement import UsePlacement
from thunder_autotune.profiles import profile
from thunder_autotune.recording import Recording
from thunder_autotune.unit_values import Subject, made_values
from thunder_autotune.ways import Way
from thunder_benchmarks.workloads import WORKLOADS
from thunder_bisect.slowness.runs import Call
from thunder_inductor.executor import ex as inductor

#: those that do not take minutes; the first is that of a default run
LARGE = ("LLaMAMLP-4096", "litgpt-4x512", "layers-32", "linear-100")
NAMES = ["linear-1", *(name for name in WORKLOADS if name not in (*LARGE, "linear-1"))]
CASES = [
    pytest.param(
        name,
        training,
        id=f"{name}, {'training' if training else 'inference'}",
        marks=[] if (name, training) == ("linear-1", False) else MARK,
    )
    for name in NAMES
    for training in (False, True)
]


@pytest.fixture(autouse=True)
def _inductor() -> Iterator[None]:
    """Register the plugin, whose options the executor reads."""
    with get_manager().temporary(thunder_inductor, name="inductor-beside-autotune"):
        yield


def results(model: Any, inputs: Sequence[torch.Tensor], training: bool) -> list[torch.Tensor]:
    """Return the results of a model, and with `training` the gradients of its parameters."""
    torch.manual_seed(0)
    found = [x for x in thunder.core.pytree.tree_iter(model(*inputs)) if isinstance(x, torch.Tensor)]
    if not training:
        return found
    loss = torch.stack([x.float().square().mean() for x in found]).sum()
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [
        *found,
        *(torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)),
    ]


def distance(found: Sequence[torch.Tensor], expected: Sequence[torch.Tensor]) -> float:
    """Return the largest distance of two results, relative to the largest norm or the own one."""
    scale = max(float(x.detach().double().norm()) for x in expected)
    pairs = zip(found, expected, strict=True)
    return max(
        float((x.double() - y.double()).norm()) / (float(y.double().norm()) + 1e-4 * scale) for x, y in pairs
    )


@pytest.mark.parametrize(("name", "training"), CASES)
def test_a_tuned_model_computes_what_eager_does(name: str, training: bool) -> None:
    model, inputs = WORKLOADS[name].make(torch.float32)
    model.eval()
    with torch.set_grad_enabled(training):
        tuning = autotune(thunder.jit(model, executors=[inductor]), *inputs, budget_s=3600)
        assert tuning.is_complete, str(tuning)
        assert {entry.key: entry.refused for entry in tuning.entries if entry.refused} == {}
        assert distance(results(tuning.compiled, inputs, training), results(model, inputs, training)) < 1e-4


@pytest.mark.parametrize(("name", "training"), CASES)
def test_a_placement_at_random_computes_what_eager_does(name: str, training: bool) -> None:
    model, inputs = WORKLOADS[name].make(torch.float32)
    model.eval()
    with torch.set_grad_enabled(training):
        compiled = thunder.jit(model, executors=[inductor])
        recording, call = Recording(), Call(fn=model, args=inputs, kwargs={})
        with call.undone():
            call.run(add_transform(compiled, transform=[recording]))
        data = thunder.compile_data(compiled)
        assert data is not None
        expected, chooser = results(model, inputs, training), random.Random(0)
        for _ in range(3):
            entries = []
            for unit in recording.units.values():
                values = unit.values if unit.values is not None else made_values(unit)
                given = Subject(unit, values).inputs
                names = [candidate.name for candidate in candidates_of(unit, data, given)[0]]
                if unit.region is not None:
                    names += [str(Way(unit.default, cuts=(k,))) for k in cut_positions(unit.region)[:3]]
                entries.append(
                    Entry(
                        kind=unit.kind,
                        key=unit.key,
                        executor=chooser.choice(names),
                        default=unit.default,
                        profile=profile(),
                    )
                )
            placed = add_transform(compiled, transform=[UsePlacement(Entries(entries), "chance")])
            assert distance(results(placed, inputs, training), expected) < 1e-4
