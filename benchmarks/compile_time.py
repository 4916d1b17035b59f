"""What a compile costs, stage by stage.

    python benchmarks/compile_time.py [litgpt-16 litgpt-32 families llama … demo decode] [--repeats 5]
        [--against CHECKOUT] [--stages]

CPU times of first calls with torch's kernels, of tiny models, so that kernels cost little: litgpt's GPT of
16 and 32 layers, models of 12 families of transformers, the Llama of the demo, litgpt's GPT of 8 layers for
constant and for symbolic values, and two compiles of a decode loop of two layers. Each but the last is
compiled in evaluation and in training, or in training alone, after a first compile that is not measured. A
figure is the median over `--repeats` compiles. With `--against` those of another checkout of the project run
in a process of their own, in turn with this one's, compile after compile.

Stages are those of the pipeline; `acquire` reads the program. `rest` is what is outside of the stages: the
call itself, choosing what varies, and making the entry. `instructions` are the bytecode instructions of the
program. Stages are those of the last compile.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter_ns, process_time_ns
from typing import Any

ROOT = Path(__file__).parents[1]
FAMILIES = (
    *("llama", "gpt2", "mistral", "qwen2", "gemma2", "phi"),
    *("gpt_neox", "opt", "bert", "t5", "whisper", "vit"),
)
GROUPS = {"litgpt": ("litgpt-16", "litgpt-32"), "families": FAMILIES}
ALL = ("litgpt", "families", "demo", "symbols", "decode")
Call = tuple[Any, dict[str, Any]]


def litgpt(layers: int) -> Call:
    """Return a GPT by litgpt of some layers of width 16, and its input."""
    import torch

    from thunder_benchmarks.models.stacks import litgpt as gpt

    return gpt(layers, 16, 2, hidden=64, context=64, vocabulary=64), {"idx": torch.arange(16)[None]}


def family(name: str) -> Call:
    """Return a tiny model of transformers, and its inputs."""
    sys.path.insert(0, str(ROOT / "tools"))
    families: Any = importlib.import_module("transformer_families")
    return families.model_of(name), families.inputs_of(name, "evaluation")


def demo() -> Call:
    """Return the Llama of the demo, and its input."""
    import torch

    sys.path.insert(0, str(ROOT / "examples"))
    from llama import Llama, LlamaConfig

    return Llama(LlamaConfig(layers=4)), {"tokens": torch.zeros(2, 16, dtype=torch.int64)}


def program(name: str) -> Call:
    """Return the model and the keyword arguments of a workload."""
    if name.startswith("litgpt"):
        return litgpt(int(name.partition("-")[2]))
    return demo() if name == "demo" else family(name)


def compiles(name: str, training: bool, cache: str) -> Callable[[], dict[str, float]]:
    """Return a function that compiles a program again, and returns the CPU milliseconds of each stage."""
    import torch

    import thunder

    model, inputs = program(name)
    model.train(training)

    def run() -> dict[str, float]:
        compiled = thunder.jit(model, executors=["torch"], cache=cache)
        gc.collect()
        with torch.set_grad_enabled(training):
            wall, start = perf_counter_ns(), process_time_ns()
            compiled(**inputs)
            spent, wall = process_time_ns() - start, perf_counter_ns() - wall
        return figures(compiled, spent, spent / wall)

    return run


def figures(compiled: Any, spent: int, share: float) -> dict[str, float]:
    """Return milliseconds; the stages are measured in wall time, of which the process had a share."""
    import thunder

    stats = thunder.compile_stats(compiled)
    assert stats is not None, "it is compiled"
    stages = {name: ns * share / 1e6 for name, ns in stats.stage_times.items()}
    rest = spent / 1e6 - sum(stages.values())
    return {"all": spent / 1e6, "instructions": stats.last_interpreted_instructions, **stages, "rest": rest}


def decodes(layers: int) -> Callable[[], dict[str, float]]:
    """Return a function that compiles a model for a prompt, and then for one token and a cache that grows."""
    import torch
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    import thunder

    make_config: Any = LlamaConfig
    config = make_config(
        **{"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": layers},
        **{"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 64},
    )
    llama: Any = LlamaForCausalLM
    model = llama(config).eval()

    def run() -> dict[str, float]:
        compiled: Any = thunder.jit(model, executors=["torch"])
        gc.collect()
        cache, token = DynamicCache(config=config), torch.ones(1, 1, dtype=torch.int64)
        with torch.no_grad():
            wall, start = perf_counter_ns(), process_time_ns()
            for tokens in (torch.arange(8)[None], token, token):
                compiled(input_ids=tokens, past_key_values=cache, use_cache=True)
            spent, wall = process_time_ns() - start, perf_counter_ns() - wall
        return figures(compiled, spent, spent / wall) | {"compiles": thunder.cache_misses(compiled)}

    return run


def measured(names: list[str]) -> Iterator[tuple[str, Callable[[], dict[str, float]]]]:
    """Yield a label and a function that compiles once, of each workload."""
    for name in names:
        if name == "decode":
            yield "decode, 2 layers", decodes(2)
        elif name == "symbols":
            yield "litgpt-8, constant values", compiles("litgpt-8", True, "constant values")
            yield "litgpt-8, symbolic values", compiles("litgpt-8", True, "symbolic values")
        else:
            yield f"{name}, inference", compiles(name, False, "constant values")
            yield f"{name}, training", compiles(name, True, "constant values")


def serve(names: list[str]) -> None:
    """Compile each workload as often as lines arrive; print the figures of each compile."""
    for label, run in measured(names):
        run()
        print(json.dumps(label), flush=True)
        while sys.stdin.readline().strip() == "again":
            print(json.dumps(run()), flush=True)


class Server:
    """A process that compiles at each request, with the packages of a checkout."""

    def __init__(self, root: Path, names: list[str]) -> None:
        sources = [str(path) for path in sorted(root.glob("packages/*/src"))]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(sources)}
        command = [sys.executable, __file__, "--serve", *names]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)

    def read(self) -> Any:
        """Return what the process prints next; None at the end."""
        assert self.process.stdout is not None, "it is a pipe"
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, word: str) -> None:
        """Send a line."""
        assert self.process.stdin is not None, "it is a pipe"
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()


def rows(roots: list[Path], names: list[str], repeats: int) -> Iterator[tuple[str, list[dict[str, float]]]]:
    """Yield the label of each workload, and the medians of each checkout."""
    servers = [Server(root, names) for root in roots]
    while True:
        labels = [server.read() for server in servers]
        if labels[0] is None:
            return
        runs: list[list[dict[str, float]]] = [[] for _ in servers]
        for i in range(repeats):
            order = list(zip(servers, runs, strict=True))
            for server, done in order[:: -1 if i % 2 else 1]:
                server.ask("again")
                done.append(server.read())
        for server in servers:
            server.ask("next")
        yield labels[0], [{key: median(run[key] for run in done) for key in done[0]} for done in runs]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(ALL))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout of the project")
    parser.add_argument("--stages", action="store_true", help="print the stages, too")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    names = [name for group in options.names for name in GROUPS.get(group, (group,))]
    if options.serve:
        serve(names)
        return
    roots = [path for path in (options.against, ROOT) if path is not None]
    head = ("ms of CPU time", *(path.name for path in roots), *(("ratio",) if len(roots) > 1 else ()))
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}", flush=True)
    for label, medians in rows(roots, names, options.repeats):
        shown = dict.fromkeys(key for m in medians for key in m) if options.stages else ("all",)
        for key in shown:
            values = [m.get(key, 0.0) for m in medians]
            cells = [f"{value:.1f}" for value in values]
            if len(roots) > 1:
                cells.append(f"{values[-1] / values[0]:.2f}" if values[0] else "")
            name = label if key == "all" else f"… {key}"
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
