"""Models of the `transformers` library, compiled unmodified."""

import pytest
import torch
from torch import nn

import thunder

from . import transformers_zoo
from .contract import Case, ModelContract, Session, modes, run_session

CASES: list[Case] = [case for name, make in transformers_zoo.MAKERS.items() for case in modes(name, make)]


@pytest.fixture(scope="module", params=CASES, ids=str)
def session(request: pytest.FixtureRequest) -> Session:
    """The calls that all properties of one model are read from."""
    return run_session(request.param)


class TestTransformers(ModelContract):
    """Two encoders and two decoders, tiny and randomly initialised."""


@pytest.mark.parametrize("name", ["bert", "gpt2", "llama"])
def test_gradient_checkpointing(name: str) -> None:
    """The blocks are computed again in the backward; gradients are eager's, and less is kept than without."""
    model, args, kwargs = transformers_zoo.MAKERS[name](0)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    model.train()
    kept = len(thunder.jit(model)(*args, **kwargs)[0].grad_fn.saved_tensors)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    compiled, gradients = thunder.jit(model), []
    for run in (model, compiled):
        model.zero_grad()
        run(*args, **kwargs)[0].square().mean().backward()
        gradients.append([p.grad for p in model.parameters()])
    for want, have in zip(*gradients, strict=True):
        assert (want is None) == (have is None)
        assert want is None or torch.allclose(have, want, rtol=1e-4, atol=1e-6)
    assert len(compiled(*args, **kwargs)[0].grad_fn.saved_tensors) < kept
