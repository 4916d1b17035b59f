"""Compiles small programs of libraries, unmodified, and compares them with eager.

    hatch run zoo                              all cases, in an environment that has the libraries
    hatch run zoo einops diffusers.UNet        the cases whose names begin so
    hatch run zoo --page --jobs 2              all cases, in two processes, and writes the page docs/zoo.md

What is judged is how programs are read, so they run on the executors of thunder-core alone.
``THUNDER_PLUGINS=thunder-inductor`` adds those of a package.
Each case is called twice, with gradients of all inputs and parameters where it has some. A use of a library,
such as a trainer's, is made with a compiled module and without. The answers are:
right; refused, by an error of thunder's; wrong, where a number is not eager's; failed, by any other
exception; absent, where the library is not installed or does not build the case.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import importlib.metadata
import importlib.util
import multiprocessing
import os
import pkgutil
import random
import signal
import sys
import sysconfig
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import numpy as np
import torch

os.environ.setdefault("THUNDER_PLUGINS", "")  # read when thunder is imported

import libraries
import thunder
from libraries.library_cases import CASES, USES, Case, Use
from thunder.base.errors import ThunderError

PAGE = Path(__file__).parents[1] / "docs" / "zoo.md"
# importing a module of the folder adds its cases
MODULES = [importlib.import_module(f"libraries.{m.name}") for m in pkgutil.iter_modules(libraries.__path__)]
LIMIT = 180  # seconds for each case

Answer = tuple[str, str]
Outcome = tuple[list[torch.Tensor], list[torch.Tensor | None], list[torch.Tensor]]


# Operators of torchvision's native code that its Python code registers fake kernels of when it is imported.
TORCHVISION_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
TORCHVISION = torch.library.Library("torchvision", "FRAGMENT")


def import_torchvision() -> None:
    """Import torchvision, where it is installed, also a build for CUDA beside a torch without it.

    The registry's torchvision is built for CUDA. Beside a torch for the CPU its native code does not load,
    and the import fails where it registers fake kernels of operators that are missing. Their declarations
    suffice for all that does not call them; a program that does is absent.
    """
    if importlib.util.find_spec("torchvision") is None:
        return
    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for schema in TORCHVISION_OPERATORS:
            TORCHVISION.define(schema)
        importlib.import_module("torchvision")


def answer_of(case: Case) -> Answer:
    """Return what became of a case, and the reason."""
    try:
        (program, calls, keywords), (judge, _, _) = built(case), built(case)
        expected = [outcome(judge, judge, args, keywords, case.grads) for args in calls]
    except Exception as error:
        return "absent", f"{type(error).__name__}: {first_line(error)}"
    compiled = thunder.jit(program)
    try:
        for number, (args, wanted) in enumerate(zip(calls, expected, strict=True)):
            different = differences(wanted, outcome(compiled, program, args, keywords, case.grads))
            if different:
                return "wrong", f"{different} of call {number + 1}"
    except ThunderError as error:
        return "refused", first_line(error)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {first_line(error)}"
    return "right", ""


def answer_of_use(use: Use) -> Answer:
    """Return what became of a use, and the reason. One in which no compiled program runs failed."""
    try:
        expected = use.run(lambda module: module)
    except Exception as error:
        return "absent", f"{type(error).__name__}: {first_line(error)}"
    compiled: list[Any] = []

    def compile_module(module: torch.nn.Module) -> Any:
        compiled.append(thunder.jit(module))
        return compiled[-1]

    try:
        found = use.run(compile_module)
    except ThunderError as error:
        return "refused", first_line(error)
    except Exception as error:
        return "failed", f"{type(error).__name__}: {first_line(error)}"
    if not are_equal(expected, found):
        return "wrong", "results"
    stats = [thunder.compile_stats(c) for c in compiled]
    return (
        ("right", "")
        if any(s is not None and s.calls for s in stats)
        else ("failed", "no compiled program ran")
    )


def are_equal(expected: Any, found: Any) -> bool:
    """Return whether numbers and tensors in containers are close, and all else is equal."""
    if isinstance(expected, dict):
        return list(expected) == list(found) and all(are_equal(v, found[k]) for k, v in expected.items())
    if isinstance(expected, list | tuple):
        return len(expected) == len(found) and all(map(are_equal, expected, found))
    if isinstance(expected, torch.Tensor | float):
        return are_close([expected], [found])
    return bool(expected == found)


def built(case: Case) -> tuple[Any, Any, dict[str, Any]]:
    """Return the program of a case, the same each time, its calls, and the keywords of all calls."""
    modules = 0
    while modules != len(sys.modules):  # a library may draw random numbers when it is imported
        modules = len(sys.modules)
        torch.manual_seed(0), random.seed(0), np.random.seed(0)
        program, calls, *rest = case.build()
    return program, calls, rest[0] if rest else {}


def outcome(fn: Any, module: Any, args: Any, keywords: dict[str, Any], grads: bool) -> Outcome:
    """Return the tensors of a result, the gradients of their weighted sum, and the buffers afterwards."""
    torch.manual_seed(1), random.seed(1), np.random.seed(1)
    args = [
        a.detach().clone().requires_grad_(a.requires_grad)
        if isinstance(a, torch.Tensor)
        else copy.deepcopy(a)
        for a in args
    ]
    results = list(tensors_in(fn(*args, **keywords), set()))
    parameters = list(module.parameters()) if isinstance(module, torch.nn.Module) else []
    gradients: list[torch.Tensor | None] = []
    if grads:
        weighted = [
            (r * torch.linspace(0.5, 1.5, r.numel()).view(r.shape)).sum()
            for r in results
            if r.requires_grad and not r.is_complex()
        ]
        if weighted:
            torch.stack(weighted).sum().backward()
        inputs = [a for a in args if isinstance(a, torch.Tensor)]
        gradients = [t.grad for t in (*inputs, *parameters)]
        for p in parameters:
            p.grad = None
    buffers = [b.clone() for b in module.buffers()] if isinstance(module, torch.nn.Module) else []
    return [r.detach() for r in results], gradients, buffers


def tensors_in(value: Any, seen: set[int]) -> Iterator[torch.Tensor]:
    """Yield the tensors in containers and attributes of a result."""
    if isinstance(value, torch.Tensor):
        yield value
    elif id(value) not in seen and not isinstance(value, torch.nn.Module | type):
        seen.add(id(value))
        parts: Any = (
            value.values()
            if isinstance(value, dict)
            else vars(value).values()
            if hasattr(value, "__dict__")
            else ()
        )
        for part in value if isinstance(value, list | tuple) else parts:
            yield from tensors_in(part, seen)


def differences(expected: Outcome, found: Outcome) -> str:
    """Return which of values, gradients and buffers differ, or ""."""
    parts: list[tuple[str, Any, Any]] = [
        ("values", expected[0], found[0]),
        ("gradients", expected[1], found[1]),
        ("buffers", expected[2], found[2]),
    ]
    return " and ".join(name for name, a, b in parts if not are_close(a, b))


def are_close(expected: list[Any], found: list[Any]) -> bool:
    """Return whether tensors have equal metadata, and numbers that are close for the largest of them."""
    try:
        for a, b in zip(expected, found, strict=True):
            torch.testing.assert_close(b, a, rtol=2e-4, atol=2e-5 * _scale(a), equal_nan=True)
    except (AssertionError, ValueError):
        return False
    return True


def _scale(x: Any) -> float:
    """Return the largest finite number of a tensor, or one: sums of larger numbers are rounded more."""
    if not isinstance(x, torch.Tensor) or not x.is_floating_point() or not x.numel():
        return 1.0
    return max(1.0, float(x.nan_to_num(0.0, 0.0, 0.0).abs().max()))


def first_line(error: Exception) -> str:
    """Return the first line of a message, shortened, without the folder of installed packages."""
    return str(error).partition("\n")[0].replace(sysconfig.get_path("platlib") + "/", "")[:150]


def run(names: list[str], jobs: int) -> dict[str, Answer]:
    """Return the answers of cases by name, printed as they come. Each process serves a few cases."""
    answers: dict[str, Answer] = {}
    with multiprocessing.get_context("spawn").Pool(jobs, prepare, maxtasksperchild=20) as pool:
        for name, answer in zip(names, pool.imap(answer_by_name, names), strict=True):
            answers[name] = answer
            print(f"{answer[0]:8} {name:45} {answer[1]}", flush=True)
    return answers


def _cases() -> list[Case | Use]:
    return [*CASES, *USES]


def prepare() -> None:
    """Prepare a process in which cases run."""
    signal.signal(signal.SIGALRM, _stop)
    warnings.simplefilter("ignore")
    import_torchvision()


def answer_by_name(name: str) -> Answer:
    """Return the answer of the case or use of this name; it failed if it takes too long."""
    case = next(c for c in _cases() if c.name == name)
    signal.alarm(LIMIT)
    try:
        return answer_of(case) if isinstance(case, Case) else answer_of_use(case)
    except TimeoutError:
        return "failed", f"not ready after {LIMIT} s"
    finally:
        signal.alarm(0)


def page(answers: dict[str, Answer]) -> str:
    """Return the text of the page."""
    counts = Counter(kind for kind, _ in answers.values())
    libraries = sorted({c.library for c in CASES} | {u.library for u in USES})
    reasons: dict[tuple[str, str], list[str]] = {}
    for name, (kind, reason) in answers.items():
        if kind != "right":
            reasons.setdefault((kind, reason), []).append(name)
    rows = [
        f"| {', '.join(names)} | {kind} | {reason} |" for (kind, reason), names in sorted(reasons.items())
    ]
    right = ", ".join(name for name, (kind, _) in answers.items() if kind == "right")
    return HEAD.format(
        total=len(answers),
        count=len(libraries),
        counts=", ".join(f"{n} {kind}" for kind, n in counts.most_common()),
        others=OTHERS.format(rows="\n".join(rows)) if rows else "",
        right=right,
        torch=importlib.metadata.version("torch").partition("+")[0],
    )


HEAD = """# Libraries

Small programs of {count} libraries, compiled unmodified and compared with eager: values, gradients of
inputs and parameters, buffers, in two calls. Of libraries that train or run a module, what they make of a
compiled one: losses, checkpoints, texts. The programs run on the executors of `thunder-core` alone.
`hatch run zoo --page` writes this page, in an environment of its own with the libraries at the versions that
`pyproject.toml` pins in the group `zoo`. The cases are in `tests/libraries`.

Of {total} programs, under torch {torch}: {counts}.
{others}
## What is right

{right}.
"""

OTHERS = """
## What is not right

| programs | | reason |
|---|---|---|
{rows}
"""


def main() -> int:
    """Run the command line; the exit code is 1 if a case is wrong or failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help="beginnings of the names of cases")
    parser.add_argument("--page", action="store_true", help="write docs/zoo.md")
    parser.add_argument("--jobs", type=int, default=1, help="the number of processes")
    options = parser.parse_args()
    names = [c.name for c in _cases()]
    answers = run([n for n in names if not options.names or n.startswith(tuple(options.names))], options.jobs)
    print(dict(Counter(kind for kind, _ in answers.values())))
    if options.page:
        PAGE.write_text(page(answers))
    return any(kind in ("wrong", "failed") for kind, _ in answers.values())


def _stop(*arguments: Any) -> None:
    raise TimeoutError


if __name__ == "__main__":
    sys.exit(main())
