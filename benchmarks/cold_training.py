"""Cold training step: CPU seconds from `jit` to the first gradients of a litgpt GPT, each in a fresh process.

    python benchmarks/cold_training.py [--layers 1 32] [--ways thunder eager aot] [--repeats N]

The model is a litgpt GPT of width 16: almost no arithmetic, so what is measured is the compiler, which has to
find both the forward and the backward. The libraries are imported and eager has taken one step before the
clock starts; "eager" is its second one. The gradients of all parameters are compared.
"""

from __future__ import annotations

from time import process_time

import torch
from torch.nn import functional as F

from cold import Compile, Forward, compare
from litgpt_model import gpt


def forward_and_backward(forward: Forward, tokens: torch.Tensor) -> None:
    """The next-token loss of a row of tokens, and its gradients."""
    logits = forward(tokens[:, :-1])
    F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()


def first_gradients(compiler: Compile, layers: int) -> float:
    """CPU seconds from the call that compiles to the end of the first backward."""
    reference, model, tokens = gpt(layers), gpt(layers), torch.arange(17)[None]
    forward_and_backward(reference, tokens)
    start = process_time()
    forward_and_backward(compiler(model), tokens)
    seconds = process_time() - start
    for parameter, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(parameter.grad, expected.grad)
    return seconds


if __name__ == "__main__":
    compare(__doc__, __file__, first_gradients, ways=("thunder", "eager", "aot"), layers=(1, 32))
