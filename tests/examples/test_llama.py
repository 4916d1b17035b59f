"""The example model is a Llama: checked in eager PyTorch, before anything compiles it."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from llama import Attention, Llama, LlamaConfig, RMSNorm, decode, encode, rotary_tables, rotate


@pytest.fixture(params=[True, False], ids=["tied", "untied"])
def model(request: pytest.FixtureRequest) -> Llama:
    torch.manual_seed(0)
    return Llama(LlamaConfig(layers=2, context=32, tied_head=request.param)).double().eval()


def test_norm_agrees_with_torch():
    torch.manual_seed(0)
    norm, x = RMSNorm(8, 1e-5), torch.randn(2, 3, 8)
    torch.testing.assert_close(norm(x), F.rms_norm(x, (8,), norm.weight, 1e-5))


def test_rotation_depends_on_distance_alone():
    config = LlamaConfig()
    cos, sin = (table.double() for table in rotary_tables(config))
    torch.manual_seed(0)
    q, k = torch.randn(2, config.head_width, dtype=torch.float64)
    score = [[rotate(q, cos[i], sin[i]) @ rotate(k, cos[j], sin[j]) for j in range(6)] for i in range(6)]
    torch.testing.assert_close(score[2][1], score[5][4], rtol=1e-6, atol=1e-6)
    assert not torch.isclose(score[2][1], score[5][1])


def test_grouped_attention_equals_attention_with_repeated_heads():
    torch.manual_seed(0)
    config = LlamaConfig()
    grouped, full = Attention(config), Attention(LlamaConfig(groups=config.heads))
    full.query, full.output = grouped.query, grouped.output
    for name in ("key", "value"):
        weight = getattr(grouped, name).weight.view(config.groups, config.head_width, config.width)
        repeated = weight.repeat_interleave(config.heads // config.groups, dim=0).reshape(-1, config.width)
        getattr(full, name).weight = torch.nn.Parameter(repeated)
    x, tables = torch.randn(2, 8, config.width), rotary_tables(config)
    cos, sin = (table[:8] for table in tables)
    torch.testing.assert_close(grouped(x, cos, sin), full(x, cos, sin))


def test_later_tokens_do_not_reach_earlier_logits(model):
    tokens = encode("a causal model looks back only")[None]
    changed = tokens.clone()
    changed[0, 20] = 0
    before, after = model(tokens), model(changed)
    torch.testing.assert_close(before[:, :20], after[:, :20])
    assert not torch.equal(before[:, 20:], after[:, 20:])


def test_tied_head_shares_its_weight(model):
    assert (model.head.weight is model.embedding.weight) == model.config.tied_head


def test_too_long_a_text_is_refused(model):
    with pytest.raises(ValueError, match="33 tokens do not fit into a context of 32"):
        model(torch.zeros(1, 33, dtype=torch.int64))


def test_sizes_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="groups heads"):
        LlamaConfig(heads=6, groups=4)


def test_text_survives_encoding():
    assert decode(encode("Grüße, 世界")) == "Grüße, 世界"
