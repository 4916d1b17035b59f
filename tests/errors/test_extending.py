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
    "M52-get-grad": (lambda: get_grad(torch.ones(2)), thunder.OutsideTrace, ("get_grad",)),
    "M52-put-grad": (lambda: put_grad(torch.ones(2), torch.ones(2)), thunder.OutsideTrace, ("put_grad",)),
    "M54-plugin": (
        lambda: register_executor(OperatorExecutor("torch")),
        thunder.RegistrationError,
        ("'torch'", "thunder-core", "replace=True"),
    ),
    "M55": (
        lambda: toys.executor().register_implementation("torch.lniear", execution_transform=lambda a: a),
        thunder.RegistrationError,
        ("torch.lniear", "Did you mean", "torch.nn.functional.linear"),
    ),
    "M56-tensor": (
        toys.concrete_meta,
        thunder.PluginError,
        ("culprit.concrete", "meta", "tensor(", "TensorProxy("),
    ),
    "M56-signature": (toys.unfit_meta, thunder.PluginError, ("culprit.narrow", "(x, y)", "(x)")),
    "M57": (toys.untrue_meta, thunder.PluginError, ("culprit.liar", "cpu f32[3]", "cpu f64[2]")),
    "M58-raises": (
        lambda: toys.checker_that(toys.raising),
        thunder.PluginError,
        ("raising", "'culprit'", "torch.sin", "KeyError", "Refusal"),
    ),
    "M58-returns": (
        lambda: toys.checker_that(lambda a: 3),
        thunder.PluginError,
        ("'culprit'", "torch.sin", "returned 3"),
    ),
    "M59-metadata": (
        lambda: toys.with_transform(toys.other_metadata),
        thunder.PluginError,
        ("culprit", "torch.sin", "cpu f32[3]", "cpu f32[]"),
    ),
    "M59-structure": (
        lambda: toys.with_transform(toys.other_structure),
        thunder.PluginError,
        ("culprit", "torch.sin"),
    ),
    "M59-a-tuple-of-one": (
        lambda: toys.with_transform(toys.in_a_tuple),
        thunder.PluginError,
        ("'culprit'", "torch.sin", '"cpu f32[3]"', '("cpu f32[3]",)', "the same structure"),
    ),
    "M59-raises": (
        lambda: toys.with_transform(toys.raising),
        thunder.PluginError,
        ("'culprit'", "torch.sin", "raised KeyError", "toys.py:", "module errors.toys"),
    ),
    "M60-lengths": (
        lambda: toys.with_rule(toys.uneven),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "1 values", "2 gradients"),
    ),
    "M60-shape": (
        lambda: toys.with_rule(toys.wrong_shape),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "cpu f32[3]", "cpu f32[]"),
    ),
    "M60-no-result": (
        lambda: toys.with_rule(toys.without_result),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "toys.py:", "cpu f32[3]", "None", "module errors.toys"),
    ),
    "M60-raises": (
        lambda: toys.with_rule(toys.rule_that_raises),
        thunder.PluginError,
        ("culprit_rule", "culprit.op", "toys.py:", "raised KeyError", "module errors.toys"),
    ),
    "M60-no-input": (
        lambda: toys.with_rule(toys.for_no_tensor),
        thunder.PluginError,
        ("culprit_rule", "culprit.op"),
    ),
    "M61": (
        toys.misspelt,
        thunder.InvalidArgument,
        ("Misspelt.transform_trace_pre_prologue", "transform_traces_pre_prologue"),
    ),
    "M62-none": (
        lambda: toys.with_hook(transform_trace_pre_execution=toys.nothing),
        thunder.PluginError,
        ("Culprit", "transform_trace_pre_execution", "None"),
    ),
    "M62-number": (
        lambda: toys.with_hook(transform_traces_pre_prologue=toys.one_trace),
        thunder.PluginError,
        ("Culprit", "transform_traces_pre_prologue", "3"),
    ),
    "M63-before": (
        lambda: toys.with_hook(transform_trace_pre_execution=toys.reversed_order),
        thunder.TraceError,
        ("Culprit", "is used before it is defined", "→"),
    ),
    "M63-twice": (
        lambda: toys.with_hook(transform_trace_pre_execution=toys.twice),
        thunder.TraceError,
        ("Culprit", "is defined twice", "→"),
    ),
    "M63-del": (
        lambda: toys.with_hook(transform_trace_post_optimization=toys.early_del),
        thunder.TraceError,
        ("Culprit", "is used after its del", "→"),
    ),
    "M64": (toys.taken_name, thunder.TraceError, ("'x'", "fresh")),
    "M65": (toys.bare_proxy, thunder.InvalidArgument, ("like", "shape", "device", "dtype")),
    "M65-some": (lambda: toys.bare_proxy(shape=(2,)), thunder.InvalidArgument, ("device", "dtype")),
    "M66": (toys.assigned_args, AttributeError, ("from_bsym",)),
    "M67-method": (lambda: toys.fused_by(toys.Bare), thunder.PluginError, ("'culprit'", "fusion_pass")),
    "M67-effect": (lambda: toys.fused_by(toys.Loses), thunder.TraceError, ("'culprit'", "effect")),
    "M67-others": (lambda: toys.fused_by(toys.Takes), thunder.TraceError, ("'culprit'", "'other'", "sin")),
    "M67-result": (
        lambda: toys.fused_by(toys.Drops),
        thunder.TraceError,
        ("'culprit'", "module errors.toys", "is used before it is defined", "toys.py:", "→"),
    ),
    "M67-raises": (
        lambda: toys.fused_by(toys.Fails),
        thunder.PluginError,
        ("'culprit'", "module errors.toys", "raised KeyError", "set_fuel(0)"),
    ),
    "M47-without-fn": (
        toys.without_function,
        thunder.NoExecutor,
        ("culprit.bare", "registered without fn=", "toys.py:"),
    ),
    "M53-arguments": (
        toys.unlike_operator,
        thunder.PluginError,
        ("culprit.narrow", "torch.nn.functional.gelu", "toys.py:", "module errors.toys"),
    ),
    "M69-id": (
        lambda: register(Operator(id="torch.sin", decomposition=lambda a: a)),
        thunder.RegistrationError,
        ("torch.sin",),
    ),
    "M69-function": (
        lambda: torchsymbol(torch.sin, id="errors.sine")(lambda a: a),
        thunder.RegistrationError,
        ("torch.sin", "is taken"),
    ),
    "M69-neither": (
        lambda: register(Operator(id="errors.empty")),
        thunder.RegistrationError,
        ("meta", "decomposition"),
    ),
    "M69-both": (
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
