"""Models around ``nn.LSTM`` and ``nn.GRU``: of language, of tags, of pairs of sentences, of speech."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


class LanguageModel(nn.Module):
    """Logits of the next word (t, n, words), and the states after the last; input and output embedding are
    one (Press and Wolf, 2017).
    """

    def __init__(self, words: int = 23, width: int = 8) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.drop = nn.Dropout(0.3)
        self.lstm = nn.LSTM(width, width, num_layers=2, dropout=0.2)
        self.head = nn.Linear(width, words)
        self.head.weight = self.embed.weight

    def forward(
        self, tokens: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        hidden, state = self.lstm(self.drop(self.embed(tokens)), state)
        return self.head(self.drop(hidden)), state


class Tagger(nn.Module):
    """Scores of a tag for each token (n, t, tags), read in both directions."""

    def __init__(self, words: int = 30, width: int = 6, tags: int = 5) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.gru = nn.GRU(width, width, num_layers=2, batch_first=True, bidirectional=True, dropout=0.1)
        self.norm = nn.LayerNorm(2 * width)
        self.head = nn.Linear(2 * width, tags)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.gru(self.embed(tokens))
        scores: Tensor = self.head(self.norm(states))
        return scores.masked_fill((tokens == 0).unsqueeze(-1), 0.0)


class Translator(nn.Module):
    """A loss: an LSTM reads a sentence, another writes its translation, and is told the word before
    (Sutskever et al., 2014), attending to what was read (Luong et al., 2015).
    """

    def __init__(self, words: int = 19, width: int = 8) -> None:
        super().__init__()
        self.read_words, self.write_words = nn.Embedding(words, width), nn.Embedding(words, width)
        self.reader = nn.LSTM(width, width, batch_first=True)
        self.writer = nn.LSTM(2 * width, width, batch_first=True)
        self.head = nn.Linear(width, words)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        read, state = self.reader(self.read_words(source))
        before = self.write_words(target[:, :-1])
        written, context = [], torch.zeros_like(state[0][-1])
        for t in range(before.size(1)):
            step = torch.cat([before[:, t], context], dim=-1).unsqueeze(1)
            out, state = self.writer(step, state)
            weights = torch.softmax(out @ read.transpose(1, 2), dim=-1)
            context = (weights @ read).squeeze(1)
            written.append(out.squeeze(1) + context)
        logits = self.head(torch.stack(written, dim=1))
        return F.cross_entropy(logits.flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)


class Speech(nn.Module):
    """Log-probabilities of letters (t, n, letters) from a spectrogram (n, 1, frequencies, time):
    convolutions, then recurrent layers with batch norm between them (Amodei et al., Deep Speech 2, 2016).
    """

    def __init__(self, frequencies: int = 16, width: int = 6, letters: int = 7) -> None:
        super().__init__()
        self.convolve = nn.Sequential(
            nn.Conv2d(1, 4, (5, 3), stride=(2, 1), padding=(2, 1)),
            nn.BatchNorm2d(4),
            nn.Hardtanh(0, 20),
        )
        self.first = nn.GRU(4 * frequencies // 2, width, bidirectional=True)
        self.norm = nn.BatchNorm1d(width)
        self.second = nn.RNN(width, width, nonlinearity="relu", bidirectional=True, bias=False)
        self.head = nn.Linear(width, letters)

    def forward(self, spectrogram: Tensor) -> Tensor:
        x = self.convolve(spectrogram).flatten(1, 2).permute(2, 0, 1)
        x = self._both(self.first(x)[0])
        x = self.norm(x.permute(1, 2, 0)).permute(2, 0, 1)
        return F.log_softmax(self.head(self._both(self.second(x)[0])), dim=-1)

    @staticmethod
    def _both(x: Tensor) -> Tensor:
        """The sum over both directions: (t, n, 2 * width) → (t, n, width)."""
        return x.unflatten(-1, (2, -1)).sum(-2)


def make_language_model(seed: int) -> Made:
    """Three sequences of five words."""
    torch.manual_seed(seed)
    return LanguageModel(), (torch.randint(0, 23, (5, 3)),), {}


def make_tagger(seed: int) -> Made:
    """Three sentences, two of them padded."""
    torch.manual_seed(seed)
    tokens = torch.randint(1, 30, (3, 6))
    tokens[1, 4:] = 0
    tokens[2, 2:] = 0
    return Tagger(), (tokens,), {}


def make_translator(seed: int) -> Made:
    """Two pairs of sentences."""
    torch.manual_seed(seed)
    return Translator(), (torch.randint(0, 19, (2, 5)), torch.randint(0, 19, (2, 4))), {}


def make_speech(seed: int) -> Made:
    """Two spectrograms."""
    torch.manual_seed(seed)
    return Speech(), (torch.randn(2, 1, 16, 9),), {}
