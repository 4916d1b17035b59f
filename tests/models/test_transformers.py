"""Models of the `transformers` library, compiled unmodified."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thunder
from comparison.results import assert_same
from sweeping import in_turn

from . import transformers_zoo
from .contract import Case, ModelContract, Session, modes, run_session
from .transformers_zoo import ARRANGED, Arguments

CASES: list[Case] = [case for name, make in transformers_zoo.MAKERS.items() for case in modes(name, make)]
#: eager has no grouped products of matrices in float64
IN_FLOAT32 = ("mixtral",)


@pytest.fixture(scope="module", params=CASES, ids=str)
def session(request: pytest.FixtureRequest) -> Session:
    """The calls that all properties of one model are read from."""
    return run_session(request.param)


class TestTransformers(ModelContract):
    """Twelve families, tiny and randomly initialised, with masks; those that have a cache return it."""


# -- training ------------------------------------------------------------------------------------------------

ARGUMENTS: dict[str, dict[str, bool]] = {
    "plain": {},
    "masked_and_labelled": {"masked": True, "labelled": True},
}


def in_double(arguments: Arguments) -> Arguments:
    """The arguments, floating-point tensors in float64."""
    return {
        k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in arguments.items()
    }


def step(call: Callable[..., Any], model: nn.Module, arguments: Arguments) -> Any:
    """The output of one step of gradient descent."""
    torch.manual_seed(11)
    output = call(**arguments)
    loss = output.loss if "labels" in arguments else output.logits.square().sum()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return output


@pytest.mark.parametrize(("name", "kind"), in_turn(ARRANGED, list(ARGUMENTS), 4))
def test_one_training_step_is_eagers(name: str, kind: str) -> None:
    arranged = ARRANGED[name](5)
    model, arguments = arranged.model.train(), arranged.arguments(**ARGUMENTS[kind])
    exact = name not in IN_FLOAT32
    if exact:
        model, arguments = model.double(), in_double(arguments)
    tolerances = {"rtol": 1e-7, "atol": 1e-9} if exact else {"rtol": 1e-3, "atol": 1e-5}
    twin = deepcopy(model)
    compiled = thunder.jit(twin)
    want, have = step(model, model, arguments), step(compiled, twin, arguments)
    assert_same(have, want, tolerance=1e-9 if exact else 1e-5)
    assert thunder.last_backward_traces(compiled)
    for (path, p), q in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert (q.grad is None) == (p.grad is None), path
        if p.grad is not None:
            torch.testing.assert_close(q.grad, p.grad, **tolerances, msg=lambda m, n=path: f"{n}: {m}")
        torch.testing.assert_close(q, p, **tolerances, msg=lambda m, n=path: f"{n}: {m}")
    step(compiled, twin, arguments)
    assert thunder.cache_misses(compiled) == 1, thunder.last_recompile_reasons(compiled)


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_gradient_checkpointing(name: str) -> None:
    """The blocks are computed again in the backward; gradients are eager's, and less is kept than without."""
    model, args, kwargs = transformers_zoo.MAKERS[name](0)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.config.use_cache = False  # its results would have nodes of their own, which keep a part each
    model.train()
    result = thunder.jit(model)(*args, **kwargs)[0]  # torch 2.11 frees what a node saved with the result
    saved = len(result.grad_fn.saved_tensors)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    compiled, gradients = thunder.jit(model), []
    for run in (model, compiled):
        model.zero_grad()
        run(*args, **kwargs)[0].square().mean().backward()
        gradients.append([p.grad for p in model.parameters()])
    for want, have in zip(*gradients, strict=True):
        assert (want is None) == (have is None)
        assert want is None or torch.allclose(have, want, rtol=1e-4, atol=1e-6)
    result = compiled(*args, **kwargs)[0]
    assert len(result.grad_fn.saved_tensors) < saved


# -- what depends on the data --------------------------------------------------------------------------------


def test_a_layer_left_out_by_chance_is_refused_with_the_line_of_the_model() -> None:
    arranged = ARRANGED["whisper"](5)
    arranged.model.model.encoder.layerdrop = 0.5
    line = r"modeling_whisper\.py:\d+ +if dropout_probability < self\.layerdrop"
    with pytest.raises(thunder.DataDependentControlFlow, match=line):
        thunder.jit(arranged.model.train(), data_dependent="refuse")(**arranged.plain)


def test_experts_that_the_program_looks_up_are_refused_with_the_line_of_the_model() -> None:
    arranged = ARRANGED["mixtral"](5)
    arranged.model.set_experts_implementation("eager")
    line = r"modeling_mixtral\.py:\d+ +expert_hit = torch\.greater\(.*nonzero"
    with pytest.raises(thunder.UnsupportedOperator, match=line):
        thunder.jit(arranged.model, data_dependent="refuse")(**arranged.plain)
