"""What a first call costs: two small programs, eager and by each way of `inductor_compile`.

    python benchmarks/first_calls.py [qlora] [generate] [--steady 20]

Each way runs in a process of its own: with an empty cache on disk, then, for `now`, once more with what that
left there. `program` are the seconds of the whole program, imports not counted: 15 steps of QLoRA of a
llama-like model of two layers, six tokens of a GPT of two layers (both by transformers, of width 64, with
bitsandbytes). `call` are the milliseconds of a further step or of six further tokens, the least of
`--steady`, before and after all code is there.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

HEAD = ("way", "first call, s", "program, s", "its CPU, s", "call before code, ms", "after, ms")
WAYS = ("eager", "now", "now, next process", "background", "later")


def qlora(wrap: Callable[..., Any]) -> tuple[Callable[[], Any], int]:
    """Return a step of QLoRA of a llama-like model of two layers, and how often the program calls it."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128,
        hidden_size=64,
        intermediate_size=172,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    torch.manual_seed(0)
    llama: Any = LlamaForCausalLM
    model = wrap(llama(config).train())
    tokens = torch.randint(0, 128, (2, 32))
    optimiser = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)

    def step() -> Any:
        loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    return step, 15


def generate(wrap: Callable[..., Any]) -> tuple[Callable[[], Any], int]:
    """Return a call that generates six tokens with a GPT of two layers, and that the program does it once."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    make_config: Any = GPT2Config
    config = make_config(vocab_size=128, n_positions=64, n_embd=64, n_layer=2, n_head=4, bos_token_id=0)
    config.eos_token_id = config.pad_token_id = None
    gpt: Any = GPT2LMHeadModel
    model = wrap(gpt(config).eval())
    tokens = torch.randint(1, 128, (1, 8))

    def call() -> Any:
        with torch.no_grad():
            return model.generate(tokens, max_new_tokens=6, do_sample=False).tolist()

    return call, 1


def wrapper_of(program: str, way: str) -> Callable[..., Any]:
    """Return what makes a model of a program one of a way."""
    if program == "qlora":
        import torch

        if way == "eager":
            from bitsandbytes.nn.modules import Linear4bit as QuantisedLinear

            quantised: Any = QuantisedLinear

            def adapted(model: Any) -> Any:
                """As `peft` does: linear layers in 4 bits, each with an adapter of rank 4."""
                model.requires_grad_(False)

                class Adapted(torch.nn.Module):
                    def __init__(self, linear: Any) -> None:
                        super().__init__()
                        self.base = quantised(
                            linear.in_features, linear.out_features, bias=False, quant_type="nf4"
                        )
                        self.base.load_state_dict(linear.state_dict())
                        self.base.requires_grad_(False)
                        self.a = torch.nn.Parameter(torch.randn(4, linear.in_features) / 8)
                        self.b = torch.nn.Parameter(torch.zeros(linear.out_features, 4))

                    def forward(self, x: Any) -> Any:
                        return self.base(x) + x @ self.a.T @ self.b.T * 2

                layers = [(m, n, c) for m in model.modules() for n, c in m.named_children()]
                for parent, name, child in layers:
                    if isinstance(child, torch.nn.Linear):
                        setattr(parent, name, Adapted(child))
                return model.to("cpu")

            return adapted
    elif way == "eager":
        return lambda model: model
    import thunder

    options: dict[str, Any] = {"inductor_compile": way.partition(",")[0]}
    if program == "generate":

        def compiled(model: Any) -> Any:
            model.forward = thunder.jit(model.forward, **options)
            return model

        return compiled
    from thunder.transforms import LORATransform
    from thunder.transforms.quantization import BitsAndBytesLinearQuant4bit, get_bitsandbytes_executor

    executors = (get_bitsandbytes_executor(), *thunder.get_default_executors())
    transforms = [LORATransform(r=4, lora_alpha=8), BitsAndBytesLinearQuant4bit()]
    return lambda model: thunder.jit(model, transforms=transforms, executors=executors, **options)


def measured(program: str, way: str, steady: int) -> dict[str, float]:
    """Run a program in this process; return seconds."""
    import bitsandbytes  # noqa: F401
    import torch  # noqa: F401
    import transformers  # noqa: F401

    import thunder  # noqa: F401

    step, count = {"qlora": qlora, "generate": generate}[program](wrapper_of(program, way))
    started, cpu = time.perf_counter(), time.process_time()
    step()
    first = time.perf_counter() - started
    for _ in range(count - 1):
        step()
    figures = {"first": first, "program": time.perf_counter() - started, "cpu": time.process_time() - cpu}
    figures["before"] = least(step, steady)
    if way in ("background", "later"):
        from thunder_inductor.background import wait_for_code

        wait_for_code()
        step()
    return figures | {"after": least(step, steady)}


def least(step: Callable[[], Any], times: int) -> float:
    """Return the least seconds of a call."""
    seconds = []
    for _ in range(times):
        started = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("programs", nargs="*", default=["qlora", "generate"])
    parser.add_argument("--steady", type=int, default=20)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        print(json.dumps(measured(chosen.programs[0], chosen.one, chosen.steady)))
        return
    for program in chosen.programs:
        rows = []
        with tempfile.TemporaryDirectory() as kept:
            for way in WAYS:
                with tempfile.TemporaryDirectory() as empty:
                    folder = kept if way.startswith("now") else empty
                    options = ["--one", way, "--steady", str(chosen.steady)]
                    command = [sys.executable, __file__, program, *options]
                    environment = os.environ | {"THUNDER_CACHE_DIR": folder}
                    done = subprocess.run(
                        command, env=environment, stdout=subprocess.PIPE, check=True, text=True
                    )
                figures = json.loads(done.stdout.splitlines()[-1])
                seconds = [f"{figures[name]:.2f}" for name in ("first", "program", "cpu")]
                calls = [f"{figures[name] * 1000:.1f}" for name in ("before", "after")]
                rows.append((way, *seconds, *calls))
        print(f"\n{program}\n\n| {' | '.join(HEAD)} |\n|{'---|' * len(HEAD)}")
        print(*(f"| {' | '.join(row)} |" for row in rows), sep="\n")


if __name__ == "__main__":
    main()
