"""Packed sequences in recurrent networks, whose lengths are data."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import thunder


class Network(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.rnn = kind(3, 4, batch_first=True, bidirectional=True)

    def forward(self, x: torch.Tensor, lengths: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        output, state = self.rnn(packed)
        padded, counts = pad_packed_sequence(output, batch_first=True, padding_value=-1.0, total_length=5)
        return padded, state, counts


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_a_packed_network_is_compiled_for_the_lengths(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    model = Network(kind)
    compiled = thunder.jit(model)
    for lengths in ([3, 5], [3, 5], [4, 2]):
        results = []
        for fn in (compiled, model):
            model.zero_grad()
            x = torch.linspace(-1, 1, 30).reshape(2, 5, 3).requires_grad_()
            padded, state, counts = fn(x, torch.tensor(lengths))
            (padded.sum() + sum(s.pow(2).sum() for s in (state if kind is nn.LSTM else (state,)))).backward()
            results.append([padded, state, counts, x.grad, [p.grad for p in model.parameters()]])
        torch.testing.assert_close(*results)
    assert thunder.cache_misses(compiled) == 2
    assert thunder.compile_stats(compiled).runs_by_python == 0
