"""What symbolic sizes cost: compiles, warm calls, and decoding with a cache that grows.

    python benchmarks/symbolic_cost.py [--tokens 256] [--repeats 20] [--parts compile calls decoding]
        [--layers 2 8 16] [--width 64] [--ways eager …]

All times are CPU times. A compile is the first call of a litgpt GPT of width 16, forward and backward, for
the sizes of its call and for all sizes. A warm call is one of 1 and of 100 layers of `torch.nn.Linear(2, 2)`;
what symbols add to it is the difference. Both ways run in turn in one process, each time in the other order,
and ratios are medians over neighbours, which a busy machine slows down alike. Decoding is
`transformers`' `generate` with a Llama of `--layers` and `--width`, with everything that the first call in
a process does but the imports. A process before, which is not measured, leaves the bytecode of what the
call imports, as an installed package has it. Each way runs in a process of its own, the ways in turn, and
the time is the median of `--decodings` processes. A third `generate` in each process, which compiles
nothing more, gives the time of a token; from both follows the number of tokens from which a way is faster
than eager. (The second one compiles for a static cache that is there.) Ratios are to eager with the cache
that grows.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from statistics import median
from time import process_time_ns
from typing import Any

import torch

import thunder
from thunder_benchmarks.machine import machine_facts, one_line
from thunder_benchmarks.models.stacks import litgpt
from thunder_benchmarks.report import Rendered, markdown

KINDS = ("constant values", "symbolic values")
Rows = Iterator[tuple[str, ...]]
#: ways of decoding: with a cache that grows, and with one of full length ("static")
WAYS = (
    "eager",
    "torch.compile(dynamic=True)",
    "thunder, torch",
    "thunder, inductor",
    "eager, static",
    "torch.compile, static",
    "thunder, torch, static",
    "thunder, inductor, static",
)


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


def decode(way: str, tokens: int, layers: int, width: int) -> dict[str, Any]:
    """CPU seconds of the first and the third call of `generate`, with the tokens, in a process of its own."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    torch.set_num_threads(1)
    sizes: dict[str, Any] = {"hidden_size": width, "intermediate_size": 2 * width, "vocab_size": 256}
    heads: dict[str, Any] = {"num_attention_heads": 4, "num_key_value_heads": 2}
    config = LlamaConfig(**sizes, **heads, num_hidden_layers=layers, eos_token_id=None, pad_token_id=0)
    build: Any = LlamaForCausalLM
    model = build(config).eval()
    forward = model.forward
    start = process_time_ns()
    cache: dict[str, Any] = {"cache_implementation": "static"} if way.endswith("static") else {}
    if way.startswith("torch.compile"):
        # the library's documentation names this mode for a static cache; without a GPU it is the default mode
        model.forward = torch.compile(forward, **{"mode": "reduce-overhead"} if cache else {"dynamic": True})
    elif way.startswith("thunder"):
        executors = ["inductor", "torch"] if "inductor" in way else ["torch"]
        model.forward = thunder.jit(forward, executors=executors)
    prompt, results, times = torch.arange(8)[None], [], []
    for _ in range(3):
        result = model.generate(prompt, max_new_tokens=tokens, do_sample=False, use_cache=True, **cache)
        times.append((process_time_ns() - start) / 1e9)
        results.append(result.tolist())
        gc.collect()  # a full collection, which may fall into any call, is in none
        start = process_time_ns()
    assert results[0] == results[1] == results[2], "all decode the same tokens"
    misses = thunder.cache_misses(model.forward) if way.startswith("thunder") else None
    return {"first": times[0], "again": times[2], "tokens": results[0], "compiles": misses}


def decoded_apart(way: str, tokens: int, layers: int, width: int, bytecode: str) -> dict[str, Any]:
    """What :func:`decode` returns, in a new process, which keeps the bytecode of modules in a folder."""
    options = ["--tokens", str(tokens), "--layers", str(layers), "--width", str(width)]
    command = [sys.executable, __file__, *options, "--decode", way]
    env = {**os.environ, "PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    output = subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def decoding_rows(ways: Sequence[str], tokens: int, layers: int, width: int, processes: int) -> Rows:
    """Rows of the table for one model; raises RuntimeError for other tokens than eager's."""
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory() as bytecode:
        for way in ways:
            if not way.startswith("torch.compile"):
                decoded_apart(way, 2, layers, width, bytecode)
        for _ in range(processes):
            for way in ways:
                runs[way].append(decoded_apart(way, tokens, layers, width, bytecode))
    first, again = (
        {way: median(run[name] for run in runs[way]) for way in ways} for name in ("first", "again")
    )
    for way in ways:
        if any(run["tokens"] != runs["eager"][0]["tokens"] for run in runs[way]):
            raise RuntimeError(f"{way} decodes other tokens than eager")
        saved = (again["eager"] - again[way]) / tokens
        enough = math.ceil((first[way] - again[way]) / saved) if saved > 0 else None
        yield (
            f"{layers} layers, width {width}, {way}",
            f"{first[way]:.2f}",
            f"{first[way] / first['eager']:.2f}",
            f"{again[way] / tokens * 1e3:.2f}",
            f"{again[way] / again['eager']:.2f}",
            "" if runs[way][0]["compiles"] is None else str(runs[way][0]["compiles"]),
            "" if way == "eager" else "never" if enough is None else str(enough),
        )


def decoding_table(
    ways: Sequence[str], tokens: int, layers: Sequence[int], width: int, runs: int
) -> Rendered:
    """Seconds of each way."""
    head = ("model, way", "first, s", "÷ eager", "then, ms a token", "÷ eager", "compiles", "faster from")
    table = Rendered(f"Decoding, {tokens} tokens", head)
    for count in layers:
        table.rows += decoding_rows(ways, tokens, count, width, runs)
    table.notes.append("The last column is the number of tokens, compiles included.")
    return table


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--parts", nargs="+", default=["compile", "calls", "decoding"])
    parser.add_argument("--layers", type=int, nargs="+", default=[2], help="of the model that decodes")
    parser.add_argument("--width", type=int, default=64, help="of the model that decodes")
    parser.add_argument("--ways", nargs="+", default=WAYS, choices=WAYS, help="eager, and those beside it")
    parser.add_argument("--decodings", type=int, default=1, help="processes for each way of decoding")
    parser.add_argument("--decode", help="one way of decoding, printed as JSON")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.decode:
        print(json.dumps(decode(arguments.decode, arguments.tokens, arguments.layers[0], arguments.width)))
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
        ways = tuple(dict.fromkeys(("eager", *arguments.ways)))
        options = arguments.tokens, arguments.layers, arguments.width, arguments.decodings
        tables.append(decoding_table(ways, *options))
    tables[-1].notes.append(f"{one_line(machine_facts(None))}.")
    for each in tables:
        print(markdown(each), end="")


if __name__ == "__main__":
    main()
