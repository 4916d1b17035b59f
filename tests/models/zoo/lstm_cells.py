"""A speech-like tagger: a loop over LSTM cells, written out and torch's, with a step of its own each way."""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn


class State(NamedTuple):
    """What a cell passes on: (n, width) each."""

    hidden: Tensor
    cell: Tensor


class Cell(nn.Module):
    """An LSTM cell with normalised gates, as the formulas have it (Ba et al., 2016)."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.gates = nn.Linear(inputs + width, 4 * width)
        self.norm, self.norm_cell = nn.LayerNorm(4 * width), nn.LayerNorm(width)
        with torch.no_grad():
            self.gates.bias[width : 2 * width].fill_(1.0)  # remember at first

    def forward(self, x: Tensor, state: State) -> State:
        gates = self.norm(self.gates(torch.cat([x, state.hidden], dim=-1)))
        i, f, g, o = gates.chunk(4, dim=-1)
        cell = torch.sigmoid(f) * state.cell + torch.sigmoid(i) * torch.tanh(g)
        return State(torch.sigmoid(o) * torch.tanh(self.norm_cell(cell)), cell)


class Tagger(nn.Module):
    """Scores of a tag for each token (n, t, tags), and the states at the end; padding keeps the state."""

    def __init__(self, words: int = 30, width: int = 10, tags: int = 6) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.forward_cell, self.backward_cell = Cell(width, width), nn.LSTMCell(width, width)
        self.initial = nn.Parameter(torch.zeros(2, width))
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, tokens: Tensor) -> tuple[Tensor, State]:
        n, t = tokens.shape
        x, mask = self.drop(self.embed(tokens)), (tokens != 0).unsqueeze(-1)
        state = State(*(s.expand(n, -1) for s in self.initial))
        ahead = []
        for i in range(t):
            new = self.forward_cell(x[:, i], state)
            state = State(*(torch.where(mask[:, i], a, b) for a, b in zip(new, state, strict=True)))
            ahead.append(state.hidden)
        hidden = cell = x.new_zeros(n, x.size(-1))
        back: list[Tensor] = []
        for i in reversed(range(t)):
            hidden, cell = self.backward_cell(x[:, i], (hidden * mask[:, i], cell * mask[:, i]))
            back.insert(0, hidden)
        return self.head(torch.cat([torch.stack(ahead, 1), torch.stack(back, 1)], dim=-1)), state


def make(seed: int) -> tuple[Tagger, tuple[Any, ...], dict[str, Any]]:
    """Three sentences, two of them padded."""
    torch.manual_seed(seed)
    tokens = torch.randint(1, 30, (3, 6))
    tokens[1, 4:] = 0
    tokens[2, 2:] = 0
    return Tagger(), (tokens,), {}
