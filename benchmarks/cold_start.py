"""Cold start: CPU seconds from `jit` to the first output of a litgpt GPT, each in a fresh process.

    python benchmarks/cold_start.py [--layers 1 8 16 32] [--ways thunder dynamo aot] [--repeats N]

The model is a litgpt GPT of width 16 in inference: almost no arithmetic, so what is measured is the compiler.
The libraries are imported and eager has run once before the clock starts; the output is compared.
"""

from __future__ import annotations

from time import process_time

import torch

from cold import Compile, compare
from litgpt_model import gpt


@torch.no_grad()
def first_result(compiler: Compile, layers: int) -> float:
    """CPU seconds from the call that compiles to the first output."""
    model, tokens = gpt(layers).eval(), torch.arange(16)[None]
    expected = model(tokens)
    start = process_time()
    output = compiler(model)(tokens)
    seconds = process_time() - start
    torch.testing.assert_close(output, expected)
    return seconds


if __name__ == "__main__":
    compare(__doc__, __file__, first_result, ways=("thunder", "dynamo", "aot"), layers=(1, 8, 16, 32))
