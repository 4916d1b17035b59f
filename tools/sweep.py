"""Runs what is exhaustive by name: all of that of which a default run of the tests takes a slice.

    hatch run sweep                          the list of sweeps
    hatch run sweep gradients --bad          one of them, with options of its own
    hatch run sweep all                      one after the other (some hours on two cores)

A sweep exits with 0 if all is as recorded. tests/README.md says when to run which.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ["-m", "pytest", "--sweep", "-q"]

#: folders of tests whose programs are compared with eager
_OF_PROGRAMS = ("autograd", "frontend", "soundness", "symbolic", "wrappers")

#: name → what it runs, and the arguments of Python
SWEEPS: dict[str, tuple[str, list[str]]] = {
    "tests": ("every test as a whole, in place of slices", [*TESTS, "tests"]),
    "operators": ("every sample of torch's operators, forward", ["tools/operator_sweep.py"]),
    "gradients": ("their gradients, to second order", ["tools/gradient_sweep.py"]),
    "gradients-of-primitives": ("of operators taken apart", ["tools/gradient_sweep.py", "--primitives"]),
    "gradients-at-singular-points": ("at zeros, ties, NaN …", ["tools/gradient_sweep.py", "--singular"]),
    "errors": (
        "every operator in every dtype and with a fault: who raises, when",
        ["-m", "torch_language.errors_as_eager"],
    ),
    "symbolic-operators": (
        "every operator with symbolic sizes",
        ["-m", "symbolic.operator_samples"],
    ),
    "symbolic-facts": ("facts about sizes, each broken by calls and left out", ["-m", "symbolic.fact_sweep"]),
    "batching": (
        "every sample, mapped over a batch",
        ["-m", "torch_language.batch_rules.batching_sweep"],
    ),
    "tangents": ("forward derivatives of every sample", ["-m", "torch_language.gradients.tangent_sweep"]),
    "results": ("strides, memory and writes of every result", ["-m", "torch_language.result_sweep"]),
    "results-symbolic": ("the same with symbolic sizes", ["-m", "torch_language.result_sweep", "--symbolic"]),
    "autocast": ("every sample under autocast on a CPU", ["-m", "torch_language.sweep_autocast", "cpu"]),
    "autocast-cuda": ("their dtypes when planned for CUDA", ["-m", "torch_language.sweep_autocast", "cuda"]),
    "models": ("every family of transformers, made small", ["tools/model_sweep.py", "-j", "2"]),
    "first-calls": (
        "every program of the suites, called as the first in a process of its own",
        [*TESTS, "tests/test_first_programs.py"],
    ),
    "mutations": ("every change of what a program read", [*TESTS, "tests/soundness/test_mutations.py"]),
    "members": ("members of modules, read and written in any order", ["-m", "soundness.module_members"]),
    "containers": ("objects from containers that change later", ["-m", "soundness.objects_from_containers"]),
    "faults": ("every faulty executor, which the conformance kit must find", [*TESTS, "tests/testing"]),
    "inductor": ("the executor `inductor`: all of its tests", [*TESTS, "tests/inductor"]),
    "inductor-kit": (
        "the conformance kit on it (above an hour)",
        [*TESTS, "tests/inductor/test_inductor_conformance.py"],
    ),
    "inductor-programs": (
        "random programs in its regions",
        [*TESTS, "tests/inductor/test_inductor_random.py"],
    ),
    "inductor-values": (
        "every operator at zeros, NaN and limits",
        [*TESTS, "tests/inductor/test_edge_values.py"],
    ),
    "memory": (
        "estimates and budgets of the benchmarks' workloads, with TorchInductor too",
        [*TESTS, "tests/transforms", "tests/compiler/test_memory.py"],
    ),
    "bisecting": (
        "every seeded fault, which a bisection must name, and right programs in regions of a compiler",
        [*TESTS, "tests/bisecting"],
    ),
    "autotune": (
        "the benchmarks' workloads, tuned with TorchInductor and with placements at random",
        [*TESTS, "tests/autotune"],
    ),
    "triton": (
        "generated Triton kernels: the conformance kit, random programs, code for each GPU",
        [*TESTS, "tests/triton_executor"],
    ),
    "nvfuser": (
        "definitions of nvFuser that torch computes: the conformance kit (ten minutes)",
        [*TESTS, "tests/nvfuser"],
    ),
    "fp8": ("linear layers in FP8: all of their tests, and each recipe's training", [*TESTS, "tests/te"]),
    "distributed": (
        "training in two and four processes",
        [*TESTS, "tests/distributed"],
    ),
    "dynamo": ("random programs of which thunder compiles a part", [*TESTS, "tests/dynamo"]),
    "handlers": ("random programs with exception handlers", ["-m", "soundness.handlers", "60", "2000"]),
    "writes": (
        "random programs of views and in-place writes",
        [*TESTS, "tests/autograd/test_random_writes.py"],
    ),
    "small-memory": (
        "programs of the suites with memory that is reused at any size",
        ["-m", "pytest", "-q", "-p", "small_memory", *(f"tests/{name}" for name in _OF_PROGRAMS)],
    ),
    "loaded-traces": (
        "programs of the suites, run as what is read of their traces' texts",
        ["-m", "pytest", "-q", "-p", "loaded_traces", *(f"tests/{name}" for name in _OF_PROGRAMS)],
    ),
    "kept-programs": (
        "programs of the suites, run as what is read of the entries that were kept",
        ["-m", "pytest", "-q", "-p", "kept_programs", *(f"tests/{name}" for name in _OF_PROGRAMS)],
    ),
    "edited-programs": (
        "programs of the suites, run as what is read of their printed texts in the place of the programs",
        ["-m", "pytest", "-q", "-p", "edited_programs", *(f"tests/{name}" for name in _OF_PROGRAMS)],
    ),
    "store": ("changes between processes, damaged artefacts", [*TESTS, "tests/store"]),
    "edited-texts": (
        "texts of traces with random edits",
        [*TESTS, "tests/ir/test_loaded_traces.py", "tests/ir/test_edited_texts.py"],
    ),
    "wrapper": ("every operation on a compiled module, in any order", ["tests/wrappers/test_wrapper.py"]),
}


def run(name: str, arguments: Sequence[str]) -> int:
    """Run a sweep with options of its own; return its exit code."""
    paths = [str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    environment = {"OMP_NUM_THREADS": "1", **os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, *SWEEPS[name][1], *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def main(arguments: Sequence[str]) -> int:
    """Run the sweep that is named, or list them; return 0 if it passed."""
    name, *options = arguments or [""]
    if name == "all":
        failed = [sweep for sweep in SWEEPS if run(sweep, []) != 0]
        print(f"failed: {', '.join(failed)}" if failed else "all sweeps passed")
        return 1 if failed else 0
    if name in SWEEPS:
        return run(name, options)
    print("\n".join(f"{sweep:30}{text}" for sweep, (text, _) in SWEEPS.items()))
    return 2 if name else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
