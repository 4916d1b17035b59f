"""Training with batches of other sizes and lengths: a few compiles serve all, gradients are eager's.

The last batch is smaller. A batch of one and a length of one may be other programs.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers

import thunder
from sweeping import one_in
from symbolic.static_reasons import failure_of

Batch = Callable[[int, int], dict[str, Any]]
_SMALL = {"vocab_size": 60, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}


def _tokens(b: int, n: int) -> torch.Tensor:
    return torch.randint(1, 60, (b, n))


def _bert() -> tuple[torch.nn.Module, Batch]:
    config = transformers.BertConfig(
        **_SMALL, intermediate_size=48, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    )

    def batch(b: int, n: int) -> dict[str, Any]:
        mask = torch.ones(b, n, dtype=torch.long)
        mask[0, n // 2 + 1 :] = 0
        return {"input_ids": (ids := _tokens(b, n)), "attention_mask": mask, "labels": ids}

    return transformers.BertForMaskedLM(config), batch


def _llama() -> tuple[torch.nn.Module, Batch]:
    config = transformers.LlamaConfig(**_SMALL, num_key_value_heads=2, intermediate_size=48)

    def batch(b: int, n: int) -> dict[str, Any]:
        mask = torch.ones(b, n, dtype=torch.long)
        return {
            "input_ids": (ids := _tokens(b, n)),
            "attention_mask": mask,
            "labels": ids,
            "use_cache": False,
        }

    return transformers.LlamaForCausalLM(config), batch


def _t5() -> tuple[torch.nn.Module, Batch]:
    config = transformers.T5Config(
        vocab_size=60,
        d_model=32,
        d_kv=8,
        d_ff=48,
        num_layers=2,
        num_heads=4,
        dropout_rate=0.0,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    model = transformers.T5ForConditionalGeneration(config)
    return model, lambda b, n: {"input_ids": _tokens(b, n), "labels": _tokens(b, n // 2 + 2)}


class _UNet(torch.nn.Module):
    """Two halvings of an image, and back, with a connection across."""

    def __init__(self) -> None:
        super().__init__()
        self.enter = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.deeper = torch.nn.Conv2d(8, 16, 3, padding=1)
        self.norm = torch.nn.GroupNorm(4, 16)
        self.up = torch.nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.join = torch.nn.Conv2d(16, 8, 3, padding=1)
        self.leave = torch.nn.Conv2d(8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        across = F.silu(self.enter(x))
        deep = F.silu(self.norm(self.deeper(F.max_pool2d(across, 2))))
        deep = F.interpolate(deep, scale_factor=0.5, mode="bilinear")
        deep = F.interpolate(deep, size=tuple(n // 2 for n in across.shape[-2:]), mode="nearest")
        raised = self.up(deep)
        below, right = (n - m for n, m in zip(across.shape[-2:], raised.shape[-2:], strict=True))
        joined = torch.cat([F.pad(raised, (0, right, 0, below)), across], 1)
        return self.leave(F.silu(self.join(joined)))


def _unet() -> tuple[torch.nn.Module, Batch]:
    return _UNet(), lambda b, n: {"x": torch.randn(b, 3, n + 6, 4 * n // 3 + 8)}


#: model → its maker, and how often it may be compiled
MODELS = {"u-net": (_unet, 3), "llama": (_llama, 3), "bert": (_bert, 3), "t5": (_t5, 3)}
#: sizes of batches, and lengths
SHAPES = [(3, 8), (3, 5), (3, 11), (3, 7), (2, 6), (1, 9), (4, 1), (3, 16)]


def _loss(output: Any) -> torch.Tensor:
    return output.loss if hasattr(output, "loss") else output.square().mean()


@pytest.mark.parametrize("name", one_in(4, MODELS))
def test_batches_of_other_lengths_are_trained_by_few_programs(name: str) -> None:
    make, most = MODELS[name]
    torch.manual_seed(0)
    model, batch = make()
    reference = copy.deepcopy(model)
    compiled = thunder.jit(model, cache="symbolic values")
    for b, n in SHAPES:
        inputs = batch(b, n)
        model.zero_grad()
        reference.zero_grad()
        expected, loss = _loss(reference(**inputs)), _loss(compiled(**inputs))
        expected.backward()
        loss.backward()
        torch.testing.assert_close(loss, expected, equal_nan=True)
        for p, q in zip(model.parameters(), reference.parameters(), strict=True):
            torch.testing.assert_close(p.grad, q.grad, equal_nan=True)
    assert failure_of(compiled) is None
    assert thunder.cache_misses(compiled) <= most
