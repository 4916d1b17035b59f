"""What weights in 8 and 4 bits gain in decoding on a CPU, beside eager, `torch.compile` and torchao.

    python benchmarks/quantised_inference.py [MODEL] [--layers 4] [--dtype bfloat16] [--threads 1] …

The model is litgpt's, of a named size and with random weights, with its cache of keys and values. torchao's
ways run where it is installed, compiled by `torch.compile`; that of 4 bits calls the same kernel of torch as
ours. All ways run in one process, in turn. Printed are tokens per second of CPU time, medians: decoding one
token at a time, and reading the prompt; the bytes of the linear layers; and how far the logits are from those
of eager in float64, as a norm in relation to theirs. Results are compared before anything is timed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

import torch
from litgpt import GPT
from torch import Tensor, nn

import thunder
from thunder.extend import Executor
from thunder.transforms import Freezing, QuantizeWeights

Forward = Callable[[Tensor, Tensor], Tensor]
#: the largest distance of logits from those in float64 in each number of bits
LARGEST_ERROR: Final = {16: 0.05, 8: 0.1, 4: 0.5}


def eager(model: nn.Module) -> Forward:
    """Return the model itself."""
    return model


def compiled_by_torch(model: nn.Module) -> Forward:
    """Return the model, compiled by `torch.compile`."""
    function: Forward = torch.compile(model)
    return function


def frozen(model: nn.Module) -> Forward:
    """Return the model, compiled by thunder with frozen weights in the dtype of the model."""
    function: Forward = thunder.compile(model, "inference")
    return function


def quantised(*args: Any, **settings: Any) -> Callable[[nn.Module], Forward]:
    """Return what compiles a model with the transform of these arguments."""

    def compiled(model: nn.Module) -> Forward:
        transforms = [QuantizeWeights(*args, release=True, **settings), Freezing()]
        executors: list[Executor | str] = ["onednn", *thunder.get_default_executors()]
        function: Forward = thunder.jit(model, transforms=transforms, executors=executors)
        return function

    return compiled


def by_torchao(config: str, **settings: Any) -> Callable[[nn.Module], Forward]:
    """Return what quantises a model by torchao and compiles it by `torch.compile`."""

    def compiled(model: nn.Module) -> Forward:
        module, _, name = config.rpartition(".")
        make = getattr(import_module(module), name)
        import_module("torchao.quantization").quantize_(model, make(**settings))
        return compiled_by_torch(model)

    return compiled


#: name → the bits of a weight, and what makes a forward of a model
WAYS: Final[dict[str, tuple[int, Callable[[nn.Module], Forward]]]] = {
    "eager": (16, eager),
    "torch.compile": (16, compiled_by_torch),
    'thunder, "inference"': (16, frozen),
    "thunder, int8-dynamic": (8, quantised("int8-dynamic")),
    "thunder, int8": (8, quantised("int8")),
    "thunder, int4": (4, quantised("int4", group_size=64)),
}
TORCHAO: Final[dict[str, tuple[int, Callable[[nn.Module], Forward]]]] = {
    "torchao, int8 dynamic": (8, by_torchao("torchao.quantization.Int8DynamicActivationInt8WeightConfig")),
    "torchao, int8": (8, by_torchao("torchao.quantization.Int8WeightOnlyConfig")),
    "torchao, int4": (
        4,
        by_torchao("torchao.prototype.quantization.int4.PrototypeInt4WeightOnlyConfig", group_size=64),
    ),
}


def model_of(options: argparse.Namespace) -> GPT:
    """Return a model with random weights and a cache."""
    torch.manual_seed(0)
    model = GPT.from_name(options.model, n_layer=options.layers).eval().requires_grad_(False)
    model.to(getattr(torch, options.dtype))
    model.max_seq_length = options.prompt + options.tokens
    return model


def with_cache(model: GPT, dtype: torch.dtype) -> GPT:
    """Return a copy of a model with a cache of its own."""
    model = copy.deepcopy(model).to(dtype)
    model.set_kv_cache(batch_size=1, dtype=dtype)
    return model


def logits_of(forward: Forward, tokens: Tensor, prompt: int) -> Iterator[tuple[float, Tensor]]:
    """Read the prompt and then one token at a time; yield the seconds of CPU time and the logits of each."""
    steps = [torch.arange(prompt), *torch.arange(prompt, tokens.shape[1]).split(1)]
    for positions in steps:
        start = time.process_time()
        logits = forward(tokens[:, positions], positions)
        yield time.process_time() - start, logits[0, -1]


def errors(
    forwards: dict[str, Forward], model: GPT, tokens: Tensor, options: argparse.Namespace
) -> dict[str, float]:
    """Return how far each way's logits are from those in float64; raise AssertionError for too far."""
    wide = with_cache(model, torch.float64)
    exact = torch.stack([y for _, y in logits_of(wide, tokens, options.prompt)])
    found = {}
    for name, forward in forwards.items():
        logits = torch.stack([y for _, y in logits_of(forward, tokens, options.prompt)]).double()
        found[name] = ((logits - exact).norm() / exact.norm()).item()
        bits, _ = (WAYS | TORCHAO)[name]
        assert found[name] < LARGEST_ERROR[bits], f"{name}: the logits differ by {found[name]:.3f}"
    return found


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="tiny-llama-1.1b", help="a size of litgpt")
    parser.add_argument("--layers", type=int, default=4, help="blocks of the model")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--tokens", type=int, default=16, help="tokens to decode")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ways", nargs="*", help="parts of the names of ways; all by default")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    ways = WAYS | (TORCHAO if find_spec("torchao") else {})
    if options.ways:
        ways = {name: way for name, way in ways.items() if any(part in name for part in options.ways)}
    with torch.no_grad():
        model = model_of(options)
        tokens = torch.randint(model.config.vocab_size, (1, options.prompt + options.tokens))
        forwards = {
            name: way(with_cache(model, model.lm_head.weight.dtype)) for name, (_, way) in ways.items()
        }
        distances = errors(forwards, model, tokens, options)
        prompts: dict[str, list[float]] = {name: [] for name in forwards}
        steps: dict[str, list[float]] = {name: [] for name in forwards}
        for _ in range(options.repeats):
            for name, forward in forwards.items():
                first, *others = (seconds for seconds, _ in logits_of(forward, tokens, options.prompt))
                prompts[name].append(first)
                steps[name] += others
    elements = sum(m.weight.numel() for m in model.modules() if isinstance(m, nn.Linear))
    print(
        f"{options.model}, {options.layers} layers, {elements / 1e6:.0f} million elements in linear layers,"
    )
    print(f"{options.dtype}, {options.threads} thread(s), a prompt of {options.prompt} tokens\n")
    print(f"{'':24} {'decoding':>12} {'prompt':>12}   error of logits")
    for name in forwards:
        decoding = 1 / statistics.median(steps[name])
        reading = options.prompt / statistics.median(prompts[name])
        print(f"{name:24} {decoding:8.1f} t/s {reading:8.0f} t/s   {distances[name]:.4f}")


if __name__ == "__main__":
    main()
