"""What a measured placement gains beside fixed lists of executors, and how long it takes to find it.

    python benchmarks/placement.py [WORKLOAD …] [--training] [--rounds 15] [--budget 60]

For each workload of `thunder_benchmarks` all lists, and the placement that `thunder.autotune` finds with the
longest list, are run in one process, in turns. Printed are medians of the CPU time of a call (with its
backward with `--training`), the ratio of the tuned program to the fastest list with half the distance between
the quartiles of the rounds' ratios, and the seconds of CPU time that tuning took. CPU time, since other
programs of the machine make the time by the clock longer. The example package thunder-rowwise takes part.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "thunder-rowwise" / "src"))

import thunder
import thunder_rowwise
from thunder.plugins import get_manager
from thunder_autotune.entries import time_text
from thunder_benchmarks.statistics_of_rounds import Spread
from thunder_benchmarks.workloads import WORKLOADS, Workload
from thunder_bisect.slowness.runs import Call, Limits, measured, warm

#: the fixed lists; the last one is tuned. Triton's kernels need a GPU, and are left out without one
LISTS = {
    "torch": ["torch"],
    "inductor": ["inductor"],
    "rowwise, torch": ["rowwise", "torch"],
    "rowwise, inductor": ["rowwise", "inductor"],
    "onednn, inductor": ["onednn", "inductor"],
    **({"triton": ["triton"]} if torch.cuda.is_available() else {}),
    "all": ["rowwise", "onednn", *(["triton"] if torch.cuda.is_available() else []), "inductor"],
}


def normalised() -> torch.nn.Module:
    """Return linear layers with RMSNorm before them, for which thunder-rowwise has a kernel."""
    layers = [(torch.nn.RMSNorm(512), torch.nn.Linear(512, 512), torch.nn.SiLU()) for _ in range(3)]
    return torch.nn.Sequential(*(module for layer in layers for module in layer))


ALL = {
    **WORKLOADS,
    "RMSNorm": Workload("3 layers of width 512, 2048 rows", normalised, lambda: (torch.randn(2048, 512),)),
}
DEFAULT = (
    "RMSNorm",
    "litgpt-4x16",
    "nanoGPT",
    "LLaMAMLP",
    "elementwise",
    "DLRM",
    "convolutions",
    "linear-10",
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print a row for each workload."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("workloads", nargs="*", default=DEFAULT, choices=[*ALL, []])
    parser.add_argument("--training", action="store_true", help="with gradients")
    parser.add_argument("--rounds", type=int, default=15, help="runs of each (default: %(default)s)")
    parser.add_argument(
        "--budget", type=float, default=60.0, help="seconds for tuning (default: %(default)s)"
    )
    parser.add_argument("--entries", action="store_true", help="print what was decided")
    options = parser.parse_args(arguments)
    if "rowwise" not in {e.name for e in thunder.get_all_executors()}:
        get_manager().register(thunder_rowwise, "rowwise")
    for name in options.workloads or DEFAULT:
        row(name, options)


def row(name: str, options: argparse.Namespace) -> None:
    """Measure a workload, and print the times of all ways."""
    model, inputs = ALL[name].make(torch.float32)
    model.train(options.training)
    with torch.set_grad_enabled(options.training):
        forms: dict[str, Any] = {text: thunder.jit(model, executors=list_) for text, list_ in LISTS.items()}
        begin = time.process_time()
        longest = thunder.jit(model, executors=list(LISTS.values())[-1])
        tuning = thunder.autotune(longest, *inputs, budget_s=options.budget)
        seconds = time.process_time() - begin
        forms["tuned"] = tuning.compiled
        call = Call(fn=model, args=inputs, kwargs={})
        with call.undone():
            for form in forms.values():
                warm(call, form)
            limits = Limits(seconds=1e9, fewest=options.rounds, most=options.rounds)
            times = measured(call, forms, limits=limits)
    fixed = [text for text in times if text != "tuned"]
    best = min(fixed, key=lambda text: times[text].cpu)
    ratio = Spread.of_ratios(times["tuned"].cpus, times[best].cpus)
    shown = ", ".join(f"{text} {time_text(found.cpu * 1e6)}" for text, found in times.items())
    print(f"{name}: {shown}")
    print(
        f"    tuned / {best}: {ratio.middle:.3f} ± {ratio.half:.3f}, found in {seconds:.1f} s; {tuning.why}"
    )
    if options.entries:
        print(tuning)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
