"""What the first call of a process costs, with and without a kept program.

    python benchmarks/kept_programs.py [--layers 32] [--runs 3] [--executors torch] [--profile FILE]

A model of litgpt of width 64, one thread: seconds of CPU of the import of thunder after that of torch, and
from the first call to its result (in training with its backward), the least of several processes. `compiled`
has an empty cache of programs, `kept` finds its program there; `--profile` writes the profile of the call of
a process that finds it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from thunder.base.text_tables import aligned

HEAD = ("way", "mode", "import, s", "call, s", "events")

PROGRAM = """
import json, os, sys, time
arguments = json.loads(sys.argv[1])
def cpu():
    return time.process_time()
before = cpu()
import torch
torch.set_num_threads(1)
of_torch = cpu()
if arguments["way"] != "eager":
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
if arguments["way"] != "eager":
    compiled = thunder.jit(model, executors=arguments["executors"])
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


def run(way: str, mode: str, cache: str, arguments: argparse.Namespace, profile: str = "") -> list[Any]:
    """Return the seconds of import and of the call of a new process, and what became of its compile."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "THUNDER_PROGRAM_CACHE": cache}
    environment |= {"THUNDER_CACHE_DIR": str(Path(cache, "code"))}
    given = {"way": way, "mode": mode, "layers": arguments.layers, "profile": profile}
    given["executors"] = arguments.executors.split(",")
    command = [sys.executable, "-c", PROGRAM, json.dumps(given)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(ran.stdout.splitlines()[-1])  # type: ignore[no-any-return]


@contextmanager
def empty_cache() -> Iterator[str]:
    """Within the context, a directory without programs."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--executors", default="torch")
    parser.add_argument("--profile", default="")
    arguments = parser.parse_args()
    rows = []
    for mode in ("inference", "training"):
        with empty_cache() as cache:
            eager = [run("eager", mode, cache, arguments) for _ in range(arguments.runs)]
            compiled = []
            for _ in range(arguments.runs):
                with empty_cache() as own:
                    compiled.append(run("compiled", mode, own, arguments))
            run("compiled", mode, cache, arguments)
            kept = [run("compiled", mode, cache, arguments) for _ in range(arguments.runs)]
            if arguments.profile and mode == "training":
                run("compiled", mode, cache, arguments, arguments.profile)
        for way, found in (("eager", eager), ("compiled", compiled), ("kept", kept)):
            kinds = ", ".join(kind for kind, *_ in found[-1][2])
            row = (way, mode, f"{min(f[0] for f in found):.2f}", f"{min(f[1] for f in found):.3f}", kinds)
            rows.append(row)
    print("\n".join(aligned([HEAD, *rows], rule=True)))


if __name__ == "__main__":
    main()
