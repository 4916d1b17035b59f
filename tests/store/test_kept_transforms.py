"""Programs of modules with transforms, which say what they depend on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import thunder
import thunder_onednn
import thunder_store
from store.kept_worlds import call, rewrite_unseen, write
from thunder.plugins import get_manager
from thunder_onednn.quantised.quantize_weights import QuantizeWeights
from thunder_transforms.lora import LORATransform
from thunder_transforms.materialization import MaterializationTransform

SCALING = """
import thunder
import thunder.torch as ltorch
from shifts import shift
from thunder.core.rewrite import replace_calls
from torch import nn

class Scaling(thunder.Transform):
    keeps_sizes = True
    identified_by = ("factor",)

    def __init__(self, factor, state, is_trained):
        self.factor, self.state, self.is_trained = factor, state, is_trained

    def cache_state(self):
        return {"state": self.state}

    def transform_module(self, model):
        model.override("fc.bias", nn.Parameter(model.get_parameter("fc.bias").detach(), self.is_trained))

    def transform_traces_pre_prologue(self, prologue, computation, epilogue, **kwargs):
        def scaled(call):
            if call.sym.id != "torch.tanh":
                return None
            return ltorch.tanh(*call.args) * self.factor + shift(self.state)
        return prologue, replace_calls(computation, scaled), epilogue
"""
SHIFTS = """
def shift(state):
    return 0.25 + state
"""
PROGRAM = """
import os
import torch
from torch import nn
from scaling import Scaling
from shifts import shift

FACTOR, STATE = float(os.environ.get("FACTOR", "2")), int(os.environ.get("STATE", "0"))
IS_TRAINED = "FROZEN" not in os.environ

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)

    def forward(self, x):
        return torch.tanh(nn.functional.linear(x, self.fc.weight) + self.fc.bias)

torch.manual_seed(0)
model = Model()

def call(jit):
    fn = jit(model, transforms=[Scaling(FACTOR, STATE, IS_TRAINED)])
    x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
    def run():
        x.grad = None
        model.fc.bias.requires_grad_(IS_TRAINED)
        y = fn(x) if fn is not model else fn(x) * FACTOR + shift(STATE)
        y.sum().backward()
        return y, x.grad, fn.get_parameter("fc.bias").grad
    return run
"""
FILES = {"program.py": PROGRAM, "scaling.py": SCALING, "shifts.py": SHIFTS}

#: what is changed → how, in the files that there are then, and by variables of the process
CHANGES: dict[str, tuple[Callable[[Path], Any] | None, dict[str, str]]] = {
    "the identity": (None, {"FACTOR": "3"}),
    "the state": (None, {"STATE": "1"}),
    "the form of a tensor in use": (None, {"FROZEN": "1"}),
    "the class": (
        lambda folder: write(folder, {"scaling.py": SCALING.replace("self.factor +", "self.factor + 1 +")}),
        {},
    ),
    "the class, unseen": (
        lambda folder: rewrite_unseen(
            folder / "scaling.py", SCALING.replace("self.factor +", "self.factor + 2 +")
        ),
        {},
    ),
    "a function that it calls": (
        lambda folder: write(folder, {"scaling.py": SCALING, "shifts.py": SHIFTS.replace("0.25", "0.125")}),
        {},
    ),
}


def test_no_program_is_stale_after_a_change_of_its_transform(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    first, again = call(tmp_path), call(tmp_path)
    assert (first.kinds, again.kinds) == (["kept"], ["hit"]), first.events
    for run in (first, again):
        assert run.compiled == run.eager
    for change, (edit, variables) in CHANGES.items():
        if edit is not None:
            edit(tmp_path)
        changed = call(tmp_path, **variables)
        assert "kept" in changed.kinds, (change, changed.events)
        assert "hit" not in changed.kinds, change
        assert changed.compiled != first.compiled, change
        if "class" not in change:  # eager does not call the class
            assert changed.compiled == changed.eager, change


def test_a_transform_that_does_not_say_what_it_depends_on_is_a_reason(tmp_path: Path) -> None:
    write(tmp_path, {**FILES, "scaling.py": SCALING.replace('identified_by = ("factor",)', "")})
    assert call(tmp_path).events == [["not kept", "transforms: Scaling has no identity"]]
    write(tmp_path, {**FILES, "scaling.py": SCALING.replace('("factor",)', '("factor", "cache_state")')})
    assert call(tmp_path).events == [["not kept", "transforms: the identity of Scaling has a method"]]


class Layers(nn.Module):
    """Layers, two of which have the same weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = (nn.Linear(256, 256) for _ in range(3))
        self.third.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.third(torch.tanh(self.second(torch.relu(self.first(x)))))


def on_meta() -> nn.Module:
    """Return the layers without memory."""
    with torch.device("meta"):
        return Layers()


#: name → a module, and transforms of it
STACKS: dict[str, Callable[[], tuple[nn.Module, list[thunder.Transform]]]] = {
    "adapters": lambda: (Layers(), [LORATransform(r=4)]),
    "dropout": lambda: (Layers().eval(), [LORATransform(r=4, lora_dropout=0.5, weights=["second"])]),
    "eight bits": lambda: (Layers().requires_grad_(False), [QuantizeWeights("int8-dynamic")]),
    "adapters of eight bits": lambda: (Layers(), [LORATransform(r=4), QuantizeWeights("int8")]),
    "memory": lambda: (on_meta(), [MaterializationTransform("cpu", init=Layers().state_dict())]),
}


def run(name: str, **options: Any) -> list[Any]:
    """Return the result of a compiled module, and the gradients, with its traces."""
    model, transforms = STACKS[name]()
    torch.manual_seed(1)
    compiled = thunder.jit(model, transforms=transforms, executors=["onednn", "torch"], **options)
    x = torch.linspace(-1, 1, 512).reshape(2, 256).requires_grad_()
    y = compiled(x)
    y.sum().backward()
    gradients = [p.grad for p in compiled.parameters() if p.grad is not None]
    text = str(thunder.last_traces(compiled)[-1]).partition("\n")[2]  # the first line has its time
    return [y, x.grad, *gradients, text]


@pytest.fixture
def _onednn() -> Iterator[None]:
    """Register thunder-onednn, as an installed package is."""
    with get_manager().temporary(thunder_onednn, name="onednn-under-test"):
        yield


@pytest.mark.usefixtures("_onednn", "_one_process")
@pytest.mark.parametrize("name", STACKS)
def test_a_program_of_transforms_that_is_found_computes_what_a_compiled_one_does(
    name: str, tmp_path: Path
) -> None:
    expected, kinds = run(name), []
    for _ in range(2):
        found = run(name, program_cache=str(tmp_path))
        kinds.append(thunder_store.events()[-1])
        assert found[-1] == expected[-1]
        torch.testing.assert_close(found[:-1], expected[:-1], rtol=0, atol=0)
    assert [event.kind for event in kinds] == ["kept", "hit"], kinds


@pytest.mark.usefixtures("_one_process")
def test_a_tensor_that_was_replaced_under_an_override_is_an_error_of_a_kept_program_too(
    tmp_path: Path,
) -> None:
    for _ in range(2):
        model = Layers()
        compiled = thunder.jit(model, transforms=[LORATransform(r=4)], program_cache=str(tmp_path))
        compiled(torch.ones(2, 256))
        model.second.weight = nn.Parameter(torch.zeros(256, 256))
        with pytest.raises(thunder.core.errors.InvalidArgument, match=r"second.weight was replaced"):
            compiled(torch.ones(2, 256))
    assert [event.kind for event in thunder_store.events()[-2:]] == ["hit", "not used"]


def test_artefacts_of_modules_with_transforms(tmp_path: Path) -> None:
    """`load` gets the transforms, since they change the module; without them its programs are not used."""
    x = torch.ones(2, 256)
    model, transforms = STACKS["adapters"]()
    compiled = thunder.jit(model, transforms=transforms)
    compiled(x)
    assert thunder.save(compiled, tmp_path / "model.thunder") == []
    kinds = []
    for given in ([LORATransform(r=4)], [LORATransform(r=8)], []):
        loaded = thunder.load(tmp_path / "model.thunder", Layers(), transforms=given)
        torch.testing.assert_close(loaded(x), compiled(x))
        kinds.append(thunder_store.events()[-1].kind)
    assert kinds == ["hit", "not used", "not used"]
