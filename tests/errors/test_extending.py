"""Mistakes of those who extend thunder: each is an error that names the culprit and says what to do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import thunder
from errors import toys
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import OperatorExecutor, register_executor
from thunder.ops.operator import Operator, register
from thunder.torch import torchsymbol

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
        lambda: toys.executor().register_implementation("torch.lniear", execution_transform=lambda a: a),
        thunder.RegistrationError,
        ("torch.lniear", "Did you mean", "torch.nn.functional.linear"),
    ),
    "a meta function that returns a tensor": (
        toys.concrete_meta,
        thunder.PluginError,
        ("culprit.concrete", "meta", "tensor(", "TensorProxy("),
    ),
    "a meta function of another signature": (
        toys.unfit_meta,
        thunder.PluginError,
        ("culprit.narrow", "(x, y)", "(x)"),
    ),
    "a meta function that is wrong about its result": (
        toys.untrue_meta,
        thunder.PluginError,
        ("culprit.liar", "cpu f32[3]", "cpu f64[2]"),
    ),
    "a checker that raises": (
        lambda: toys.checker_that(toys.raising),
        thunder.PluginError,
        ("raising", "'culprit'", "torch.sin", "KeyError", "Refusal"),
    ),
    "a checker that returns a number": (
        lambda: toys.checker_that(lambda a: 3),
        thunder.PluginError,
        ("'culprit'", "torch.sin", "returned 3"),
    ),
    "an execution transform with another result": (
        lambda: toys.with_transform(toys.other_metadata),
        thunder.PluginError,
        ("culprit", "torch.sin", "cpu f32[3]", "cpu f32[]"),
    ),
    "an execution transform with more results": (
        lambda: toys.with_transform(toys.other_structure),
        thunder.PluginError,
        ("culprit", "torch.sin"),
    ),
    "an execution transform with a tuple of one result": (
        lambda: toys.with_transform(toys.in_a_tuple),
        thunder.PluginError,
        ("'culprit'", "torch.sin", '"cpu f32[3]"', '("cpu f32[3]",)', "the same structure"),
    ),
    "an execution transform that raises": (
        lambda: toys.with_transform(toys.raising),
        thunder.PluginError,
        ("'culprit'", "torch.sin", "raised KeyError", "toys.py:", "module errors.toys"),
    ),
    "a rule with too many gradients": (
        lambda: toys.with_rule(toys.uneven),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "1 values", "2 gradients"),
    ),
    "a rule with a gradient of another shape": (
        lambda: toys.with_rule(toys.wrong_shape),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "cpu f32[3]", "cpu f32[]"),
    ),
    "a rule without a result": (
        lambda: toys.with_rule(toys.without_result),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "toys.py:", "cpu f32[3]", "None", "module errors.toys"),
    ),
    "a rule that raises": (
        lambda: toys.with_rule(toys.rule_that_raises),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "toys.py:", "raised KeyError", "module errors.toys"),
    ),
    "a rule that puts a gradient for a number": (
        lambda: toys.with_rule(toys.for_no_tensor),
        thunder.PluginError,
        ("culprit_rule", "culprit.op"),
    ),
    "a misspelt hook of a transform": (
        toys.misspelt,
        thunder.InvalidArgument,
        ("Misspelt.transform_trace_pre_prologue", "transform_traces_pre_prologue"),
    ),
    "a transform that returns None": (
        lambda: toys.with_hook(transform_trace_pre_execution=toys.nothing),
        thunder.PluginError,
        ("Culprit", "transform_trace_pre_execution", "None"),
    ),
    "a transform that returns a number": (
        lambda: toys.with_hook(transform_traces_pre_prologue=toys.one_trace),
        thunder.PluginError,
        ("Culprit", "transform_traces_pre_prologue", "3"),
    ),
    "a transform that reverses the order": (
        lambda: toys.with_hook(transform_trace_pre_execution=toys.reversed_order),
        thunder.TraceError,
        ("Culprit", "is used before it is defined", "→"),
    ),
    "a transform that defines a name twice": (
        lambda: toys.with_hook(transform_trace_pre_execution=toys.twice),
        thunder.TraceError,
        ("Culprit", "is defined twice", "→"),
    ),
    "a transform that deletes early": (
        lambda: toys.with_hook(transform_trace_post_optimization=toys.early_del),
        thunder.TraceError,
        ("Culprit", "is used after its del", "→"),
    ),
    "a proxy of a taken name": (toys.taken_name, thunder.TraceError, ("'x'", "fresh")),
    "a proxy without metadata": (
        toys.bare_proxy,
        thunder.InvalidArgument,
        ("like", "shape", "device", "dtype"),
    ),
    "a proxy with a shape alone": (
        lambda: toys.bare_proxy(shape=(2,)),
        thunder.InvalidArgument,
        ("device", "dtype"),
    ),
    "assigned arguments of a bound symbol": (toys.assigned_args, AttributeError, ("from_bsym",)),
    "a fusion executor without fusion_pass": (
        lambda: toys.fused_by(toys.Bare),
        thunder.PluginError,
        ("'culprit'", "fusion_pass"),
    ),
    "a fusion that loses an effect": (
        lambda: toys.fused_by(toys.Loses),
        thunder.TraceError,
        ("'culprit'", "effect"),
    ),
    "a fusion of an operator of another executor": (
        lambda: toys.fused_by(toys.Takes),
        thunder.TraceError,
        ("'culprit'", "'other'", "sin"),
    ),
    "a fusion that drops a result": (
        lambda: toys.fused_by(toys.Drops),
        thunder.TraceError,
        ("'culprit'", "module errors.toys", "is used before it is defined", "toys.py:", "→"),
    ),
    "a fusion that raises": (
        lambda: toys.fused_by(toys.Fails),
        thunder.PluginError,
        ("'culprit'", "module errors.toys", "raised KeyError", "set_fuel(0)"),
    ),
    "an operator without a function": (
        toys.without_function,
        thunder.NoExecutor,
        ("culprit.bare", "registered without fn=", "toys.py:"),
    ),
    "an operator unlike the one it is like": (
        toys.unlike_operator,
        thunder.PluginError,
        ("culprit.narrow", "torch.nn.functional.gelu", "toys.py:", "module errors.toys"),
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
        lambda: register(Operator(id="errors.both", meta=toys.like, decomposition=toys.like)),
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
