"""Mixtures whose experts are modules: `mixture`, and the mixtures of libraries in terms of it.

    y = mixture(self.experts, x, chosen, weights)       y[i] = Σ_j weights[i, j] * experts[chosen[i, j]](x[i])

Any program may call `mixture`, a function of torch: each expert computes with the rows that chose it. Under
`expert_parallel` another one is traced in its place, `divided_mixture`: the rows are sorted by expert, the
program of the first expert is recorded for all of them, and the stage of the transform makes of it products
with the weights of all experts.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import nn

from thunder.core.errors import UnsupportedProgram
from thunder.plugins import Lookaside

from .expert_rows import expert_results, expert_rows

__all__ = ["mixture", "mixture_lookasides"]


def mixture(
    experts: Sequence[nn.Module], x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return the weighted sums of what the chosen experts compute from rows.

    Args:
        experts: modules that compute each row of a tensor (rows, width) from that row alone.
        x: (rows, width).
        chosen: the indices of the experts of each row (rows, k).
        weights: the weight of each of them (rows, k).
    """
    y = torch.zeros_like(x)
    for index, expert in enumerate(experts):
        rows, places = torch.where(chosen == index)
        y = y.index_add(0, rows, (expert(x[rows]) * weights[rows, places, None]).to(y.dtype))
    return y


def divided_mixture(
    experts: Sequence[nn.Module], x: torch.Tensor, chosen: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return what `mixture` does, in the form that is divided between processes."""
    flat = chosen.flatten()
    order = torch.argsort(flat)
    offsets = F.one_hot(flat, len(experts)).sum(0).cumsum(0).to(torch.int32)
    tensors = [p for expert in experts for p in expert.parameters()]
    rows = expert_rows(x.repeat_interleave(chosen.shape[1], 0)[order], offsets, tensors, len(experts))
    results = expert_results(experts[0](rows), rows)
    results = results[torch.argsort(order)].view(*chosen.shape, -1)
    total: torch.Tensor = (results * weights[..., None]).sum(1)
    return total.to(x.dtype)


def litgpt_mixture(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Return what `litgpt.model.LLaMAMoE` computes."""
    config, flat = self.config, x.reshape(-1, x.shape[-1])
    if config.n_expert_groups:
        weights, chosen = self.gate(flat)
    else:
        scores, chosen = self.gate(flat).topk(config.n_expert_per_token)
        weights = scores.softmax(1, dtype=torch.float).to(x.dtype)
    y = mixture(self.experts, flat, chosen, weights * config.routed_scaling_factor).view(x.shape)
    return y + self.shared_experts(x) if config.n_shared_expert else y


#: digests of the source of `LLaMAMoE.forward`, of which `litgpt_mixture` is another form
LITGPT_FORMS: Final = frozenset({"99c88108f84843d4"})


def unknown_mixture(self: Any, x: torch.Tensor) -> torch.Tensor:
    """Refuse a mixture of a version of litgpt that is not known."""
    raise UnsupportedProgram(
        "expert_parallel does not know LLaMAMoE of this version of litgpt",
        hint="Pass thunder.jit a lookaside for it, which calls thunder.distributed.mixture.",
    )


def grouped_experts(self: Any, experts_implementation: Any, default: Any) -> Any:
    """Return the experts of transformers that are grouped products, whichever its configuration names."""
    return self["grouped_mm"]


def mixture_lookasides() -> Iterator[Lookaside]:
    """Yield what is traced in the place of `mixture`, and of the mixtures of libraries that are imported."""
    yield Lookaside(mixture, divided_mixture)
    transformers = sys.modules.get("transformers.integrations.moe")
    if transformers is not None:
        yield Lookaside(transformers.ExpertsInterface.get_interface, grouped_experts)
    litgpt = sys.modules.get("litgpt.model")
    if litgpt is not None:
        known = digest_of(litgpt.LLaMAMoE.forward) in LITGPT_FORMS
        yield Lookaside(litgpt.LLaMAMoE, litgpt_mixture if known else unknown_mixture)


def digest_of(function: Any) -> str:
    """Return a digest of the source of a function, without its comments and docstring."""
    code = inspect.unwrap(function).__code__
    text = "\n".join(line.strip() for line in inspect.getsource(code).splitlines())
    return hashlib.sha256(text.encode()).hexdigest()[:16]
