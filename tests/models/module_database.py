"""Torch's own samples of its modules, and what it means that thunder gets one right.

For each sample a module is made twice, in float64 or float32, in training or in evaluation. What the compiled
one does is compared with the other: results with their metadata, gradients of parameters and arguments,
buffers and arguments afterwards; at the tracing call and at a cached one.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.testing._internal.common_modules import module_db
from torch.utils._pytree import tree_leaves, tree_map

import thunder

#: dtype → (relative, absolute) tolerance of results and of gradients
TOLERANCES = {torch.float64: (1e-9, 1e-11), torch.float32: (1e-4, 1e-5)}
SEED = 7

ENTRIES = {info.name: info for info in module_db}


@dataclass(frozen=True)
class Sample:
    """One module with arguments of one call."""

    entry: str
    module: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    description: str
    dtype: torch.dtype
    training: bool

    def made(self) -> torch.nn.Module:
        """The module; every time the same."""
        torch.manual_seed(SEED)
        args, kwargs = copy.deepcopy((self.module.args, self.module.kwargs))
        module = ENTRIES[self.entry].module_cls(*args, **kwargs)
        return module.to(self.dtype).train(self.training)


def samples(entry: str, dtype: torch.dtype, training: bool) -> Iterator[Sample]:
    """The samples of an entry."""
    torch.manual_seed(SEED)
    for inputs in ENTRIES[entry].module_inputs_func(
        ENTRIES[entry], device="cpu", dtype=dtype, requires_grad=True, training=training
    ):
        if inputs.forward_input is not None:
            call = inputs.forward_input
            made = inputs.constructor_input
            yield Sample(entry, made, call.args, call.kwargs, inputs.desc, dtype, training)


@dataclass(frozen=True)
class Outcome:
    """What a call did."""

    result: Any
    gradients: list[Any]
    buffers: list[torch.Tensor]
    arguments: list[torch.Tensor]


def run(call: Any, module: torch.nn.Module, sample: Sample) -> Outcome:
    """A call with arguments of its own, and its gradients."""
    args, kwargs = tree_map(_own, (sample.args, sample.kwargs))
    torch.manual_seed(SEED)
    result = call(*args, **kwargs)
    arguments = [t for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    wanted = [t for t in (*module.parameters(), *arguments) if t.requires_grad]
    losses = [
        t.abs().square().sum() for t in tree_leaves(result) if isinstance(t, torch.Tensor) and t.requires_grad
    ]
    gradients = torch.autograd.grad(losses, wanted, allow_unused=True) if losses and wanted else ()
    found = [torch.zeros_like(w) if g is None else g for w, g in zip(wanted, gradients, strict=False)]
    return Outcome(result, found, [b.clone() for b in module.buffers()], arguments)


def _own(x: Any) -> Any:
    return x.detach().clone().requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x


def check(sample: Sample) -> None:
    """Raises AssertionError, saying where, unless the compiled module does what eager does."""
    eager, twin = sample.made(), sample.made()
    compiled = thunder.jit(twin)
    for number in range(2):
        expected, actual = run(eager, eager, sample), run(compiled, twin, sample)
        where = f"{sample.entry} ({sample.description}), call {number}"
        assert type(actual.result) is type(expected.result), where
        for a, e in zip(tree_leaves(actual.result), tree_leaves(expected.result), strict=True):
            if isinstance(e, torch.Tensor):
                assert (a.stride(), a.requires_grad) == (e.stride(), e.requires_grad), where
        for part in ("result", "gradients", "buffers", "arguments"):
            rtol, atol = TOLERANCES[sample.dtype]
            pairs = tree_leaves(getattr(actual, part)), tree_leaves(getattr(expected, part))
            torch.testing.assert_close(
                *pairs,
                rtol=rtol,
                atol=atol,
                equal_nan=True,
                msg=lambda text, part=part, where=where: f"{part} of {where}: {text}",
            )
    compiles = 2 if "Lazy" in sample.entry else 1  # what is not initialised has no entry
    assert thunder.cache_misses(compiled) == compiles or sample.training, f"{sample.entry}: compiled again"
