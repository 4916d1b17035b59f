"""Stacks of transforms: training, evaluation and state dicts are eager's, whatever the order."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from thunder_transforms.constant_calls import ConstantFolding
from thunder_transforms.debug_transform import DebugTransform
from thunder_transforms.extraction_only import ExtractionOnlyPrologueTransform
from thunder_transforms.lora import LORATransform
from thunder_transforms.non_finite import NonFiniteDetector
from thunder_transforms.profile_transform import ProfileTransform
from thunder_transforms.prune_checks import PrunePrologueChecks


class Network(nn.Module):
    """Tied weights, a mask, running statistics, dropout and a counter."""

    def __init__(self):
        super().__init__()
        self.embedding, self.query = nn.Embedding(7, 4), nn.Linear(4, 4)
        self.out = nn.Linear(4, 7, bias=False)
        self.norm = nn.BatchNorm1d(4)
        self.out.weight = self.embedding.weight
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens):
        x = self.embedding(tokens)
        mask = torch.triu(torch.full((3, 3), float("-inf")), 1)
        attended = torch.softmax(self.query(x) @ x.mT + mask, -1) @ x
        hidden = self.norm((x + attended).mT).mT
        if self.training:
            self.calls += 1
        return self.out(F.dropout(hidden, 0.2, self.training)), hidden


def lora():
    return LORATransform(r=2, weights=("query",), trainable=("*",))


def debug():
    return DebugTransform(lambda bsym, *args, **kwargs: bsym.sym.name)


STACKS = {
    "watching": [debug, NonFiniteDetector, ProfileTransform],
    "folding first": [
        ConstantFolding,
        PrunePrologueChecks,
        NonFiniteDetector,
        ExtractionOnlyPrologueTransform,
    ],
    "folding last": [ProfileTransform, ExtractionOnlyPrologueTransform, ConstantFolding],
    "adapters": [PrunePrologueChecks, lora, debug, ConstantFolding, NonFiniteDetector],
}
TOKENS = torch.tensor([[0, 3, 5], [1, 2, 6]])


def trained(module):
    """Return the results of three steps, and of an evaluation."""
    optimiser = torch.optim.SGD([p for n, p in module.named_parameters() if "lora" not in n], lr=0.1)
    results = []
    for step in range(3):
        torch.manual_seed(step)
        logits, hidden = module(TOKENS)
        loss = F.cross_entropy(logits.flatten(0, 1), TOKENS.flatten())
        (loss + hidden.square().mean() if step % 2 else loss).backward()
        optimiser.step()
        optimiser.zero_grad()
        results.append(logits.detach())
    with torch.no_grad():
        return [*results, module.eval()(TOKENS)[0]]


@pytest.mark.parametrize("stack", STACKS)
def test_a_stack_trains_as_eager_does(stack):
    torch.manual_seed(0)
    model = Network()
    eager, original = copy.deepcopy(model), copy.deepcopy(model.state_dict())
    compiled = thunder.jit(model, transforms=[make() for make in STACKS[stack]])
    for ours, theirs in zip(trained(compiled), trained(eager), strict=True):
        torch.testing.assert_close(ours, theirs)
    state = compiled.original_state_dict()
    assert list(state) == list(original)
    for name, tensor in eager.state_dict().items():
        torch.testing.assert_close(state[name], tensor)
    twin = copy.deepcopy(compiled)
    assert torch.equal(twin(TOKENS)[0], compiled(TOKENS)[0])
    compiled.load_original_state_dict(original)
    assert all(torch.equal(t, original[name]) for name, t in compiled.original_state_dict().items())


def test_adapters_in_attention_modules():
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    x = torch.linspace(-1, 1, 48).view(2, 3, 8)
    transform = LORATransform(r=2)
    compiled = thunder.jit(layer, transforms=[transform])
    torch.testing.assert_close(compiled(x), layer(x))
    compiled(x).sum().backward()
    assert all(compiled.get_parameter(f"{name}.lora_b").grad is not None for name in transform.adapters)
    assert sorted(transform.adapters) == ["linear1.weight", "linear2.weight", "self_attn.out_proj.weight"]
