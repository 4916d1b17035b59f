"""What the first call of a process costs, with and without a kept program.

    python benchmarks/kept_programs.py [--layers 32] [--runs 3] [--profile FILE]

A model of litgpt of width 64, one thread: seconds of CPU of the import of thunder after that of torch, and
from the first call to its result (in training with its backward), the least of several processes. `compiled`
has empty caches, `kept` finds its program and code there, as `torch.compile` does in its second row. All of
TorchInductor's work is done in the process that is measured. `--profile` writes the profile of the call in
training of a process that finds its program.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thunder.base.text_tables import aligned

HEAD = ("way", "mode", "import, s", "call, s", "events")

#: what compiles: thunder with these executors, or torch
COMPILERS = ("thunder, torch", "thunder, inductor", "torch.compile")
MODES = ("inference", "training")

PROGRAM = """
import json, os, sys, time
arguments = json.loads(sys.argv[1])
def cpu():
    return time.process_time()
before = cpu()
import torch
torch.set_num_threads(1)
of_torch = cpu()
compiler, _, executors = arguments["compiler"].partition(", ")
if compiler == "thunder":
    import thunder
imported = cpu()
import litgpt
torch.manual_seed(0)
config = litgpt.Config(n_layer=arguments["layers"], n_embd=64, n_head=4, block_size=64, vocab_size=128,
                       padded_vocab_size=128, bias=False, norm_class_name="RMSNorm",
                       mlp_class_name="LLaMAMLP", intermediate_size=172, rotary_percentage=1.0)
model = litgpt.GPT(config)
tokens = torch.randint(0, 128, (2, 32))
compiled = model
if compiler == "thunder":
    compiled = thunder.jit(model, executors=[executors])
elif compiler == "torch.compile":
    compiled = torch.compile(model)
profile = None
if arguments["profile"]:
    import cProfile
    profile = cProfile.Profile()
start = cpu()
if profile:
    profile.enable()
if arguments["mode"] == "inference":
    with torch.no_grad():
        compiled(tokens)
else:
    compiled(tokens).sum().backward()
if profile:
    profile.disable()
    profile.dump_stats(arguments["profile"])
end = cpu()
events = []
if "thunder_store" in sys.modules:
    events = [list(event) for event in sys.modules["thunder_store"].events()]
print(json.dumps([imported - of_torch, end - start, events]))
"""


def run(compiler: str, mode: str, cache: str, layers: int, profile: str = "") -> list[Any]:
    """Return the seconds of import and of the call of a new process, and what became of its compile."""
    caches = {"THUNDER_PROGRAM_CACHE": cache, "THUNDER_CACHE_DIR": str(Path(cache, "code"))}
    caches |= {"TORCHINDUCTOR_CACHE_DIR": str(Path(cache, "inductor"))}
    one_thread = {"OMP_NUM_THREADS": "1", "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    given = {"compiler": compiler, "mode": mode, "layers": layers, "profile": profile}
    command = [sys.executable, "-c", PROGRAM, json.dumps(given)]
    environment = os.environ | caches | one_thread
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def row(way: str, mode: str, found: Sequence[list[Any]]) -> tuple[str, ...]:
    """Return the row of a table of the least of several runs."""
    kinds = ", ".join(kind for kind, *_ in found[-1][2])
    return (way, mode, *(f"{min(run[column] for run in found):.3f}" for column in (0, 1)), kinds)


def rows_of(compiler: str, mode: str, arguments: argparse.Namespace) -> list[tuple[str, ...]]:
    """Return the rows of a compiler with empty caches, and with those that a process has filled."""
    compiled = []
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory() as cache:
            compiled.append(run(compiler, mode, cache, arguments.layers))
    with tempfile.TemporaryDirectory() as cache:
        run(compiler, mode, cache, arguments.layers)
        kept = [run(compiler, mode, cache, arguments.layers) for _ in range(arguments.runs)]
        if arguments.profile and (compiler, mode) == (COMPILERS[0], "training"):
            run(compiler, mode, cache, arguments.layers, arguments.profile)
    return [row(f"{compiler}, compiled", mode, compiled), row(f"{compiler}, kept", mode, kept)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--profile", default="")
    arguments = parser.parse_args()
    rows: list[tuple[str, ...]] = [HEAD]
    for mode in MODES:
        with tempfile.TemporaryDirectory() as cache:
            eager = [run("eager", mode, cache, arguments.layers) for _ in range(arguments.runs)]
        rows.append(row("eager", mode, eager))
        for compiler in COMPILERS:
            rows += rows_of(compiler, mode, arguments)
    print("\n".join(aligned(rows, rule=True)))


if __name__ == "__main__":
    main()
