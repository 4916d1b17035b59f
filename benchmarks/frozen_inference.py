"""What frozen weights gain in inference on a CPU, beside `torch.compile` with and without its own freezing.

    python benchmarks/frozen_inference.py [MODEL …] [--dtype bfloat16] [--threads 1] [--repeats 7]

All ways run in one process, in turn. Printed are milliseconds of CPU time of a call, medians, and the speed
in relation to `torch.compile` with `torch._inductor.config.freezing`. Results are compared with those of
eager before anything is timed.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import thunder

Call = Callable[[], Any]


def mlp() -> tuple[nn.Module, tuple[Any, ...]]:
    """Return three linear layers, and 32 rows."""
    layers = [nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 10)]
    return nn.Sequential(*layers), (torch.randn(32, 512),)


def resnet18() -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a ResNet of 18 layers, and one image of 224 by 224."""
    from thunder_benchmarks.models.convolutional import ResNet

    return ResNet((64, 128, 256, 512), 2, 1000), (torch.randn(1, 3, 224, 224),)


def bert() -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a BERT of four layers of width 768 (transformers), and 128 tokens."""
    from transformers import BertConfig, BertModel

    make_config: Any = BertConfig
    make_model: Any = BertModel
    return make_model(make_config(num_hidden_layers=4)), (torch.randint(0, 1000, (1, 128)),)


def llama() -> tuple[nn.Module, tuple[Any, ...]]:
    """Return a Llama of four layers of width 768 (transformers), and 128 tokens."""
    from transformers import LlamaConfig, LlamaModel

    config = LlamaConfig(
        vocab_size=1000,
        hidden_size=768,
        intermediate_size=2048,
        num_hidden_layers=4,
        num_attention_heads=12,
    )
    return LlamaModel(config), (torch.randint(0, 1000, (1, 128)),)


MODELS = {"mlp": mlp, "resnet18": resnet18, "bert": bert, "llama": llama}


def compiled_by_torch(model: nn.Module, args: tuple[Any, ...]) -> Call:
    """Return a call that `torch.compile` has compiled, after its first run."""
    function: Any = torch.compile(lambda *given: model(*given))
    function(*args)
    return lambda: function(*args)


def frozen_by_torch(model: nn.Module, args: tuple[Any, ...]) -> Call:
    """Return a call of a copy of the model with frozen weights, after its first run.

    It is compiled as a module: of one code, TorchDynamo would run the program without frozen weights.
    """
    function: Any = torch.compile(copy.deepcopy(model))
    with torch._inductor.config.patch(freezing=True):
        function(*args)
    return lambda: function(*args)


def ways(model: nn.Module, args: tuple[Any, ...]) -> dict[str, Call]:
    """Return the ways to call a model, by name."""
    compiled, frozen = thunder.jit(model), thunder.compile(model, "inference")
    return {
        "eager": lambda: model(*args),
        "torch.compile": compiled_by_torch(model, args),
        "torch.compile, freezing": frozen_by_torch(model, args),
        "thunder": lambda: compiled(*args),
        'thunder, "inference"': lambda: frozen(*args),
    }


def tensor_of(result: Any) -> torch.Tensor:
    """Return the tensor of a result, which models of transformers have in an object."""
    tensor: torch.Tensor = getattr(result, "last_hidden_state", result)
    return tensor.float()


def medians(calls: dict[str, Call], repeats: int, seconds: float = 0.25) -> dict[str, float]:
    """Return the milliseconds of CPU time of a call of each way."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            start, count = time.process_time(), 0
            while time.process_time() - start < seconds:
                call()
                count += 1
            times[name].append((time.process_time() - start) / count * 1e3)
    return {name: statistics.median(each) for name, each in times.items()}


def main() -> None:
    """Print a table of each model."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.simplefilter("ignore")
    dtype = getattr(torch, options.dtype)
    for name in options.models or MODELS:
        torch.manual_seed(0)
        model, args = MODELS[name]()
        model = model.eval().to(dtype)
        args = tuple(x.to(dtype) if x.is_floating_point() else x for x in args)
        torch._dynamo.reset()
        with torch.no_grad():
            calls = ways(model, args)
            expected = tensor_of(calls["eager"]())
            for call in calls.values():
                torch.testing.assert_close(tensor_of(call()), expected, rtol=0.05, atol=0.1)
            times = medians(calls, options.repeats)
        print(f"\n{name}, {options.dtype}, {options.threads} thread(s)")
        for way, milliseconds in times.items():
            speed = times["torch.compile, freezing"] / milliseconds
            print(f"  {way:24} {milliseconds:8.2f} ms   {speed:.2f}")


if __name__ == "__main__":
    main()
