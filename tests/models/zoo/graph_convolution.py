"""A graph network: messages along edges, gathered by scatter, attention normalised at each node."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class GraphConvolution(nn.Module):
    """The neighbours' sum, each weighted by both degrees (Kipf and Welling, 2017)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        n = x.size(0)
        loops = torch.arange(n, device=x.device)
        source, target = torch.cat([edges, loops.expand(2, n)], dim=1)
        degree = x.new_zeros(n).scatter_add_(0, target, x.new_ones(target.size(0)))
        weight = degree.pow(-0.5)
        weight = weight[source] * weight[target]
        x = self.linear(x)
        return x.new_zeros(x.shape).index_add_(0, target, weight[:, None] * x[source]) + self.bias


class GraphAttention(nn.Module):
    """Each node attends to those with an edge to it (Veličković et al., 2018)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.linear = nn.Linear(width, width, bias=False)
        self.source = nn.Parameter(torch.randn(1, heads, self.size) * 0.3)
        self.target = nn.Parameter(torch.randn(1, heads, self.size) * 0.3)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        (source, target), n = edges, x.size(0)
        h = self.linear(x).view(n, self.heads, self.size)
        score = (h * self.source).sum(-1)[source] + (h * self.target).sum(-1)[target]
        score = F.leaky_relu(score, 0.2)
        index = target[:, None].expand_as(score)
        highest = score.new_full((n, self.heads), -1e9).scatter_reduce(0, index, score.detach(), "amax")
        weight = (score - highest[target]).exp()
        total = torch.zeros_like(highest).scatter_add(0, index, weight)
        weight = self.drop(weight / (total[target] + 1e-16))
        out = torch.zeros_like(h)
        out.index_add_(0, target, weight[..., None] * h[source])
        return x + F.elu(out.flatten(1))


class GraphNetwork(nn.Module):
    """Scores of each graph (graphs, classes) by the mean, the maximum and the number of its nodes."""

    def __init__(self, features: int = 5, width: int = 12, classes: int = 3) -> None:
        super().__init__()
        self.first, self.second = GraphConvolution(features, width), GraphAttention(width, heads=3)
        self.norm = nn.BatchNorm1d(width)
        self.head = nn.Linear(2 * width + 1, classes)

    def forward(self, x: Tensor, edges: Tensor, graph: Tensor, graphs: int) -> Tensor:
        x = F.relu(self.norm(self.first(x, edges)))
        x = self.second(x, edges)
        index = graph[:, None].expand(-1, x.size(1))
        mean = x.new_zeros(graphs, x.size(1)).scatter_reduce(0, index, x, "mean", include_self=False)
        highest = x.new_zeros(graphs, x.size(1)).scatter_reduce(0, index, x, "amax", include_self=False)
        count = x.new_zeros(graphs).index_add(0, graph, torch.ones_like(x[:, 0]))
        return self.head(torch.cat([mean, highest, count.log1p()[:, None]], dim=1))


def make(seed: int) -> tuple[GraphNetwork, tuple[Any, ...], dict[str, Any]]:
    """Two graphs of 6 and 4 nodes, in one."""
    torch.manual_seed(seed)
    edges = torch.cat([torch.randint(0, 6, (2, 14)), torch.randint(6, 10, (2, 8))], dim=1)
    graph = torch.tensor([0] * 6 + [1] * 4)
    return GraphNetwork(), (torch.randn(10, 5), edges), {"graph": graph, "graphs": 2}
