"""What transforms and executors contribute is guarded, kept, never silently ignored."""

from __future__ import annotations

import os
from typing import ClassVar

import pytest
import torch
from torch import nn

import thunder
from new_processes import run_python
from soundness.harness import ramp


class Halved(thunder.Transform):
    """Overrides the weight of a linear layer by half of it."""

    def transform_module(self, model):
        model.override("weight", model.get_parameter("weight").detach() / 2)


class Keyed(thunder.Transform):
    """Contributes one key to the state under which an entry is valid."""

    state: ClassVar[dict[str, int]] = {"recipe": 1}

    def cache_state(self):
        return dict(self.state)


def linear():
    layer = nn.Linear(3, 3, bias=False)
    layer.weight.data = ramp(3, 3)
    return layer


def test_a_replaced_parameter_that_a_transform_overrode_raises_and_names_the_way():
    layer = linear()
    compiled = thunder.jit(layer, transforms=[Halved()])
    with torch.no_grad():
        assert torch.equal(compiled(ramp(2, 3)), ramp(2, 3) @ (ramp(3, 3) / 2).mT)
        layer.weight = nn.Parameter(ramp(3, 3, start=5.0))
        with pytest.raises(thunder.InvalidArgument) as caught:
            compiled(ramp(2, 3))
    assert "weight" in str(caught.value)
    assert "load_original_state_dict" in str(caught.value)


def test_an_override_never_writes_to_the_users_module():
    layer = linear()
    compiled = thunder.jit(layer, transforms=[Halved()])
    assert torch.equal(layer.weight, ramp(3, 3))
    assert torch.equal(compiled.get_parameter("weight"), ramp(3, 3) / 2)
    assert torch.equal(compiled.state_dict()["weight"], ramp(3, 3) / 2)


def test_state_that_a_transform_contributes_is_guarded(monkeypatch):
    compiled = thunder.jit(lambda x: x * 2, transforms=[Keyed()])
    compiled(ramp(3))
    compiled(ramp(3))
    monkeypatch.setattr(Keyed, "state", {"recipe": 2})
    compiled(ramp(3))
    assert thunder.cache_misses(compiled) == 2
    assert "recipe" in str(thunder.last_recompile_reasons(compiled))
    monkeypatch.setattr(Keyed, "state", {"recipe": 1})
    compiled(ramp(3))
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (2, 2)


def test_state_that_a_transform_changes_in_place_is_guarded_and_named():
    class Kept(thunder.Transform):
        state: ClassVar = {"recipe": 1, "level": 2}

        def cache_state(self):
            return self.state

    compiled = thunder.jit(lambda x: x * 2, transforms=[Kept()])
    compiled(ramp(3))
    Kept.state["recipe"] = 2
    compiled(ramp(3))
    assert thunder.cache_misses(compiled) == 2
    (reason,) = thunder.last_recompile_reasons(compiled)
    assert reason.fact == "state of transforms[0], Kept: recipe"
    assert reason.expected.keys() == reason.found.keys() == {"recipe"}


def test_state_that_could_change_unseen_is_refused():
    class Loose(thunder.Transform):
        def cache_state(self):
            return {"recipe": []}

    with pytest.raises(thunder.PluginError, match=r"Loose\.cache_state returned"):
        thunder.jit(lambda x: x * 2, transforms=[Loose()])(ramp(3))


def test_registering_an_executor_later_changes_nothing_for_an_existing_object():
    def program(x):
        return torch.sin(x)

    compiled = thunder.jit(program)
    before = thunder.compile_data(compiled).executors_list
    executor = thunder.extend.OperatorExecutor("late_comer")
    mine = executor.register_operator(
        "late_sin", meta=lambda x: thunder.TensorProxy(like=x), fn=lambda x: x * 100
    )
    executor.register_implementation("torch.sin", mine)
    thunder.extend.register_executor(executor, default=True)
    try:
        assert torch.equal(compiled(ramp(3)), torch.sin(ramp(3)))
        assert thunder.compile_data(compiled).executors_list == before
        assert torch.equal(thunder.jit(program)(ramp(3)), ramp(3) * 100)
    finally:
        thunder.extend.deregister_executor(executor)
    assert torch.equal(thunder.jit(program)(ramp(3)), torch.sin(ramp(3)))


def test_add_transform_keeps_cache_mode_and_options():
    added = Keyed()
    compiled = thunder.jit(lambda x, k: x * k, cache="no caching", sharp_edges="warn", cse=False)
    other = thunder.core.transforms.add_transform(compiled, transform=added)
    assert other is not compiled
    assert thunder.cache_option(other) is thunder.cache_option(compiled)
    before, after = thunder.compile_data(compiled), thunder.compile_data(other)
    assert after.sharp_edges is before.sharp_edges
    assert after.compile_options == before.compile_options
    assert after.executors_list == before.executors_list
    assert list(thunder.list_transforms(other)) == [added]
    assert list(thunder.list_transforms(compiled)) == []
    assert torch.equal(other(ramp(3), 2), ramp(3) * 2)


class Importing(thunder.Transform):
    """Changes at its first compiles what the program reads, as an import of a library may."""

    def __init__(self, times: int):
        self.times = times

    def transform_trace_pre_execution(self, trace, **kwargs):
        if self.times > 0:
            self.times -= 1
            LOADED.append("imported")
        return trace


LOADED = []


def scaled_if_loaded(x):
    return x * 2 if "mine" in LOADED else x * 3


def test_a_program_is_read_again_where_its_own_compile_changed_what_it_had_read():
    LOADED.clear()
    compiled = thunder.jit(scaled_if_loaded, transforms=[Importing(times=1)])
    for _ in range(2):
        assert torch.equal(compiled(ramp(3)), ramp(3) * 3)
    assert thunder.cache_misses(compiled) == 1
    LOADED.append("mine")
    assert torch.equal(compiled(ramp(3)), ramp(3) * 2)


def test_a_compile_that_always_changes_what_the_program_reads_is_an_error():
    compiled = thunder.jit(scaled_if_loaded, transforms=[Importing(times=5)])
    with pytest.raises(thunder.core.errors.InternalError, match="do not hold"):
        compiled(ramp(3))


TRAINING = """
import sys, torch, thunder
compiled = thunder.jit(lambda x, w: torch.nn.functional.layer_norm((x @ w).relu(), (3,)), executors=["torch"])
loaded = set(sys.modules)
compiled(torch.eye(3), torch.eye(3, requires_grad=True)).sum().backward()
assert set(sys.modules) == loaded, f"a compile imports {set(sys.modules) - loaded}"
thunder.jit(torch.special.airy_ai)(torch.eye(3))  # a function without a row
assert "torch._dynamo" not in sys.modules, "no program needs another compiler"
"""


def test_a_compile_imports_no_library_and_never_another_compiler():
    run = run_python("-c", TRAINING, env={**os.environ, "THUNDER_PLUGINS": ""})
    assert run.returncode == 0, run.stderr
