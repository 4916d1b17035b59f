"""Mistakes of those who extend thunder: each is an error that names the culprit and says what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import thunder
from errors import faulty_extensions as faulty
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import OperatorExecutor, register_executor
from thunder.ops.operator import Operator, register
from thunder.torch import torchsymbol

#: how a message names the file and the module of the mistake
FILE, MODULE = "faulty_extensions.py:", "module errors.faulty_extensions"

#: what is done, the error class, and words that its message contains
MISTAKES: dict[str, tuple[Callable[[], object], type[Exception], tuple[str, ...]]] = {
    "get_grad outside of a trace": (lambda: get_grad(torch.ones(2)), thunder.OutsideTrace, ("get_grad",)),
    "put_grad outside of a trace": (
        lambda: put_grad(torch.ones(2), torch.ones(2)),
        thunder.OutsideTrace,
        ("put_grad",),
    ),
    "an executor of a taken name": (
        lambda: register_executor(OperatorExecutor("torch")),
        thunder.RegistrationError,
        ("'torch'", "thunder-core", "replace=True"),
    ),
    "an implementation of a misspelt operator": (
        lambda: faulty.executor().register_implementation("torch.lniear", execution_transform=lambda a: a),
        thunder.RegistrationError,
        ("torch.lniear", "Did you mean", "torch.nn.functional.linear"),
    ),
    "a meta function that returns a tensor": (
        faulty.concrete_meta,
        thunder.PluginError,
        ("culprit.concrete", "meta", "tensor(", "TensorProxy("),
    ),
    "a meta function of another signature": (
        faulty.unfit_meta,
        thunder.PluginError,
        ("culprit.narrow", "(x, y)", "(x)"),
    ),
    "a meta function that is wrong about its result": (
        faulty.untrue_meta,
        thunder.PluginError,
        ("culprit.liar", "cpu f32[3]", "cpu f64[2]"),
    ),
    "a checker that raises": (
        lambda: faulty.checker_that(faulty.raising),
        thunder.PluginError,
        ("raising", "'culprit'", "torch.sin", "KeyError", "Refusal"),
    ),
    "a checker that returns a number": (
        lambda: faulty.checker_that(lambda a: 3),
        thunder.PluginError,
        ("'culprit'", "torch.sin", "returned 3"),
    ),
    "an execution transform with another result": (
        lambda: faulty.with_transform(faulty.other_metadata),
        thunder.PluginError,
        ("culprit", "torch.sin", "cpu f32[3]", "cpu f32[]"),
    ),
    "an execution transform with more results": (
        lambda: faulty.with_transform(faulty.other_structure),
        thunder.PluginError,
        ("culprit", "torch.sin"),
    ),
    "an execution transform with a tuple of one result": (
        lambda: faulty.with_transform(faulty.in_a_tuple),
        thunder.PluginError,
        ("'culprit'", "torch.sin", '"cpu f32[3]"', '("cpu f32[3]",)', "the same structure"),
    ),
    "an execution transform that raises": (
        lambda: faulty.with_transform(faulty.raising),
        thunder.PluginError,
        (
            "'culprit'",
            "torch.sin",
            "raised KeyError",
            FILE,
            MODULE,
        ),
    ),
    "a rule with too many gradients": (
        lambda: faulty.with_rule(faulty.uneven),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "1 values", "2 gradients"),
    ),
    "a rule with a gradient of another shape": (
        lambda: faulty.with_rule(faulty.wrong_shape),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "cpu f32[3]", "cpu f32[]"),
    ),
    "a rule without a result": (
        lambda: faulty.with_rule(faulty.without_result),
        thunder.PluginError,
        (
            "culprit_rule",
            "culprit.op",
            FILE,
            "cpu f32[3]",
            "None",
            MODULE,
        ),
    ),
    "a rule that raises": (
        lambda: faulty.with_rule(faulty.rule_that_raises),
        thunder.PluginError,
        (
            "culprit_rule",
            "culprit.op",
            FILE,
            "raised KeyError",
            MODULE,
        ),
    ),
    "a rule that puts a gradient for a number": (
        lambda: faulty.with_rule(faulty.for_no_tensor),
        thunder.PluginError,
        ("culprit_rule", "culprit.op"),
    ),
    "a misspelt hook of a transform": (
        faulty.misspelt,
        thunder.InvalidArgument,
        ("Misspelt.transform_trace_pre_prologue", "transform_traces_pre_prologue"),
    ),
    "a transform that returns None": (
        lambda: faulty.with_hook(transform_trace_pre_execution=faulty.nothing),
        thunder.PluginError,
        ("Culprit", "transform_trace_pre_execution", "None"),
    ),
    "a transform that returns a number": (
        lambda: faulty.with_hook(transform_traces_pre_prologue=faulty.one_trace),
        thunder.PluginError,
        ("Culprit", "transform_traces_pre_prologue", "3"),
    ),
    "a transform that reverses the order": (
        lambda: faulty.with_hook(transform_trace_pre_execution=faulty.reversed_order),
        thunder.TraceError,
        ("Culprit", "is used before it is defined", "→"),
    ),
    "a transform that defines a name twice": (
        lambda: faulty.with_hook(transform_trace_pre_execution=faulty.twice),
        thunder.TraceError,
        ("Culprit", "is defined twice", "→"),
    ),
    "a transform that deletes early": (
        lambda: faulty.with_hook(transform_trace_post_optimization=faulty.early_del),
        thunder.TraceError,
        ("Culprit", "is used after its del", "→"),
    ),
    "a proxy of a taken name": (faulty.taken_name, thunder.TraceError, ("'x'", "fresh")),
    "a proxy without metadata": (
        faulty.bare_proxy,
        thunder.InvalidArgument,
        ("like", "shape", "device", "dtype"),
    ),
    "a proxy with a shape alone": (
        lambda: faulty.bare_proxy(shape=(2,)),
        thunder.InvalidArgument,
        ("device", "dtype"),
    ),
    "assigned arguments of a bound symbol": (faulty.assigned_args, AttributeError, ("from_bsym",)),
    "a fusion executor without fuse": (
        lambda: faulty.fused_by(faulty.Bare),
        thunder.PluginError,
        ("'culprit'", "fuse(self, region, fusion_counter)"),
    ),
    "a fusion that loses an effect": (
        lambda: faulty.fused_by(faulty.Loses),
        thunder.TraceError,
        ("'culprit'", "effect"),
    ),
    "a fusion of an operator of another executor": (
        lambda: faulty.fused_by(faulty.Takes),
        thunder.TraceError,
        ("'culprit'", "'other'", "sin"),
    ),
    "a fusion that drops a result": (
        lambda: faulty.fused_by(faulty.Drops),
        thunder.TraceError,
        (
            "'culprit'",
            MODULE,
            "is used before it is defined",
            FILE,
            "→",
        ),
    ),
    "a fusion that raises": (
        lambda: faulty.fused_by(faulty.Fails),
        thunder.PluginError,
        ("'culprit'", MODULE, "raised KeyError", "set_fuel(0)"),
    ),
    "an operator without a function": (
        faulty.without_function,
        thunder.NoExecutor,
        ("culprit.bare", "registered without fn=", FILE),
    ),
    "an operator unlike the one it is like": (
        faulty.unlike_operator,
        thunder.PluginError,
        (
            "culprit.narrow",
            "torch.nn.functional.gelu",
            FILE,
            MODULE,
        ),
    ),
    "a row of a taken id": (
        lambda: register(Operator(id="torch.sin", decomposition=lambda a: a)),
        thunder.RegistrationError,
        ("torch.sin",),
    ),
    "a row of a taken function": (
        lambda: torchsymbol(torch.sin, id="errors.sine")(lambda a: a),
        thunder.RegistrationError,
        ("torch.sin", "is taken"),
    ),
    "a row without meta and decomposition": (
        lambda: register(Operator(id="errors.empty")),
        thunder.RegistrationError,
        ("meta", "decomposition"),
    ),
    "a row with meta and decomposition": (
        lambda: register(Operator(id="errors.both", meta=faulty.like, decomposition=faulty.like)),
        thunder.RegistrationError,
        ("meta", "decomposition"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_names_the_culprit_and_the_way_out(name: str) -> None:
    mistake, error, words = MISTAKES[name]
    with pytest.raises(error) as caught:
        mistake()
    text = str(caught.value)
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} not in: {text}"
