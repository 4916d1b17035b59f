"""None where something else is expected: the error says None, and not the name of its type."""

from __future__ import annotations

import types

import pytest
import torch

import thunder
from thunder.core import devices, dtypes
from thunder.extend import FusionExecutor


def override_none():
    class Overrides(thunder.Transform):
        def transform_module(self, model):
            model.override("weight", None)

    thunder.jit(torch.nn.Linear(1, 1), transforms=[Overrides()])


def fuse_returns_none():
    class Fuses(FusionExecutor):
        def fuse(self, region, fusion_counter):
            pass

    ex = Fuses("fuses_nothing")
    ex.register_supported("torch.sin")
    thunder.jit(torch.sin, executors=[ex])(torch.ones(2))


CALLS = {
    "dtype": (lambda: dtypes.to_dtype(None), thunder.InvalidArgument, "None is not a data type"),
    "device": (lambda: devices.to_device(None), thunder.InvalidArgument, "None is not a device"),
    "executor": (lambda: thunder.get_executor(None), thunder.InvalidArgument, "and not None"),
    "require": (
        lambda: thunder.jit(torch.sin, require={"torch.sin": None}),
        thunder.InvalidArgument,
        "names the executor None",
    ),
    "lookaside": (
        lambda: thunder.jit(torch.sin, lookasides=[None]),
        thunder.InvalidArgument,
        "lookasides= received None\n",
    ),
    "override": (override_none, thunder.PluginError, "needs a tensor, and received None"),
    "fusion": (fuse_returns_none, thunder.PluginError, "fuse of executor 'fuses_nothing' returned None"),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_message_says_none(name):
    call, error, text = CALLS[name]
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value)
    assert "NoneType" not in str(caught.value)


def test_the_reason_of_a_recompile_says_none():
    settings = types.SimpleNamespace(function=torch.sin)
    compiled = thunder.jit(lambda x, y: settings.function(x) if y is None else y)
    x = torch.ones(1)
    compiled(x, torch.ones(2))
    compiled(x, None)
    assert thunder.last_recompile_reasons(compiled)[0].found is None
    settings.function = None
    with pytest.raises(TypeError, match="not callable"):
        compiled(x, None)
    assert str(thunder.last_recompile_reasons(compiled)[0]).endswith("found None")
