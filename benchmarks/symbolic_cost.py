"""What symbolic sizes cost: compiles, warm calls, and decoding with a cache that grows.

    python benchmarks/symbolic_cost.py [--tokens 256] [--repeats 20] [--parts compile calls decoding]

All times are CPU times. A compile is the first call of a litgpt GPT of width 16, forward and backward, for
the sizes of its call and for all sizes. A warm call is one of 1 and of 100 layers of `torch.nn.Linear(2, 2)`;
what symbols add to it is the difference. Both ways run in turn in one process, each time in the other order,
and ratios are medians over neighbours, which a busy machine slows down alike. Decoding is
`transformers`' `generate` with a Llama of two layers, everything included that the first call in a process
does but the imports; each way runs once, in a process of its own.
"""

from __future__ import annotations

import argparse
import gc
import json
import subprocess
import sys
from statistics import median
from time import process_time_ns
from typing import Any

import torch

import thunder
from thunder_benchmarks.machine import machine_facts, one_line
from thunder_benchmarks.models.stacks import litgpt
from thunder_benchmarks.report import Rendered, markdown

KINDS = ("constant values", "symbolic values")
WAYS = ("eager", "torch.compile(dynamic=True)", "thunder, torch", "thunder, inductor")


def compile_ms(layers: int, cache: str) -> float:
    """CPU milliseconds of one compile."""
    model = litgpt(layers, 16, 2, hidden=64, context=64, vocabulary=64)
    tokens = torch.arange(16)[None]
    compiled = thunder.jit(model, executors=["torch"], cache=cache)
    gc.collect()
    start = process_time_ns()
    compiled(tokens)
    spent = process_time_ns() - start
    stats = thunder.compile_stats(compiled)
    assert stats is not None
    assert stats.last_static_reason is None, "the program is for all sizes"
    return spent / 1e6


def warm_calls(layers: int) -> tuple[Any, ...]:
    """Programs of tiny layers, compiled for one size and for all, and their input."""
    model = torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(layers))).requires_grad_(False)
    x = torch.ones(2, 2)
    programs = [thunder.jit(model, executors=["torch"], cache=cache) for cache in KINDS]
    for program in programs:
        program(x)
    return (*programs, x)


def call_us(program: Any, x: torch.Tensor, calls: int = 300) -> float:
    """CPU microseconds of a call."""
    start = process_time_ns()
    for _ in range(calls):
        program(x)
    return (process_time_ns() - start) / calls / 1e3


def in_turn(measure: Any, ways: Any, repeats: int) -> list[tuple[float, ...]]:
    """Times of two ways, each time in the other order."""
    pairs = []
    for n in range(repeats):
        order = ways if n % 2 else ways[::-1]
        times = {id(way): measure(way) for way in order}
        pairs.append(tuple(times[id(way)] for way in ways))
    return pairs


def row(name: str, pairs: list[tuple[float, ...]], unit: str) -> tuple[str, ...]:
    """One row of the table."""
    static, symbolic = (median(times) for times in zip(*pairs, strict=True))
    more = median(b - a for a, b in pairs)
    ratio = median(b / a for a, b in pairs)
    return (name, f"{static:.1f} {unit}", f"{symbolic:.1f} {unit}", f"{more:+.1f} {unit}", f"{ratio:.2f}")


def decode(way: str, tokens: int) -> dict[str, Any]:
    """CPU seconds of `generate`, with the tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes: dict[str, Any] = {"hidden_size": 64, "intermediate_size": 128, "vocab_size": 256}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(**sizes, **heads, num_hidden_layers=2, eos_token_id=None, pad_token_id=0)
    build: Any = LlamaForCausalLM
    model = build(config).eval()
    forward = model.forward
    start = process_time_ns()
    if way.startswith("torch.compile"):
        model.forward = torch.compile(forward, dynamic=True)
    elif way != "eager":
        executors = ["inductor", "torch"] if way.endswith("inductor") else ["torch"]
        model.forward = thunder.jit(forward, executors=executors)
    prompt = torch.arange(8)[None]
    result = model.generate(prompt, max_new_tokens=tokens, do_sample=False, use_cache=True)
    seconds = (process_time_ns() - start) / 1e9
    misses = thunder.cache_misses(model.forward) if way.startswith("thunder") else None
    return {"seconds": seconds, "tokens": result.tolist(), "compiles": misses}


def decoding_table(tokens: int) -> Rendered:
    """Seconds of each way; raises RuntimeError for other tokens than eager's."""
    table = Rendered(f"Decoding, {tokens} tokens", ("way", "CPU s", "÷ eager", "compiles"))
    found = {}
    for way in WAYS:
        command = [sys.executable, __file__, "--tokens", str(tokens), "--decode", way]
        output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found[way] = json.loads(output.splitlines()[-1])
        if found[way]["tokens"] != found["eager"]["tokens"]:
            raise RuntimeError(f"{way} decodes other tokens than eager")
        seconds = found[way]["seconds"]
        compiles = "" if found[way]["compiles"] is None else str(found[way]["compiles"])
        table.rows.append((way, f"{seconds:.1f}", f"{seconds / found['eager']['seconds']:.2f}", compiles))
    return table


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--parts", nargs="+", default=["compile", "calls", "decoding"])
    parser.add_argument("--decode", help="one way of decoding, printed as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.decode:
        print(json.dumps(decode(arguments.decode, arguments.tokens)))
        return
    table = Rendered("Symbolic sizes", ("", "one size", "all sizes", "more", "ratio"))
    for layers in (1, 8) if "compile" in arguments.parts else ():
        for kind in KINDS:
            compile_ms(layers, kind)
        pairs = in_turn(lambda kind, layers=layers: compile_ms(layers, kind), KINDS, arguments.repeats)
        table.rows.append(row(f"compile, {layers} layers", pairs, "ms"))
    for layers in (1, 100) if "calls" in arguments.parts else ():
        *programs, x = warm_calls(layers)
        pairs = in_turn(lambda program, x=x: call_us(program, x), programs, arguments.repeats)
        table.rows.append(row(f"warm call, {layers} layers", pairs, "µs"))
    tables = [table] if table.rows else []
    if "decoding" in arguments.parts:
        tables.append(decoding_table(arguments.tokens))
    tables[-1].notes.append(f"{one_line(machine_facts(None))}.")
    for each in tables:
        print(markdown(each), end="")


if __name__ == "__main__":
    main()
