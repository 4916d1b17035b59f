"""Compiles a small model of every family of the `transformers` library, unmodified, and compares with eager.

    python tools/model_sweep.py [family …] [-j 2] [--limit SECONDS] [--details] [--output FILE]
    python tools/model_sweep.py --record       all families, for the page docs/models.md
    python tools/model_sweep.py --page         writes the page from what was recorded; --check only compares

A process a family, with a time limit. Three questions are asked of each family: the forward in evaluation,
called twice with different data; the forward with a padding mask; a training step with the gradients of all
parameters, in float64 where eager can. The answers are: right; refused, by an error of thunder's that names
a line; recompiled, where the second call did not use the program of the first; as compiled, where eager does
the same once `torch.compiler.is_compiling()` is true for it as well; wrong, where a number or a type is not
eager's; crashed, by any other exception; not asked, where eager cannot do it, or not twice the same way.
Families that eager cannot run from a small configuration are counted and left out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import resource
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
from torch import Tensor, nn
from transformers.utils import logging

import thunder
from models.contract import tensors
from models.judge import assert_same
from models.shrunken import Arguments, Built, NotBuilt, build, families
from thunder.core.errors import InternalError, MissingGradient, ThunderError, UnsupportedProgram

RECORDED = Path(__file__).parents[1] / "tests" / "models" / "library.json"
PAGE = Path(__file__).parents[1] / "docs" / "models.md"
REFUSALS = (UnsupportedProgram, MissingGradient)
STAGES = ("forward", "masked", "training")
#: bytes of address space that a family may have
MEMORY = 12 << 30
SEED = 11

#: of gradients; some families compute in float32 by their own word, whatever their parameters are
TOLERANCES = {torch.float64: 1e-5, torch.float32: 1e-3}

Answer = dict[str, Any]


# -- one family ----------------------------------------------------------------------------------------------


class Recompiled(Exception):
    """The second call did not use the program of the first."""


class AsCompiled(Exception):
    """Not what eager does, but what it does where `torch.compiler.is_compiling()` says so."""


class NotAJudge(Exception):
    """Eager itself cannot do it, or not twice the same way."""


def answer_of(question: Callable[[Built], None], built: Built) -> Answer:
    """What came of a question, as the record has it."""
    started = time.perf_counter()
    try:
        question(built)
        found: Answer = {"verdict": "right"}
    except NotAJudge as error:
        found = {"verdict": "not asked", "reason": first_line(error)}
    except AsCompiled as error:
        found = {"verdict": "as compiled", "reason": first_line(error)}
    except Recompiled as error:
        found = {"verdict": "recompiled", "reason": str(error)}
    except REFUSALS as error:
        lines = [f"{Path(at.file).name}:{at.line} {at.text}" for at in error.where[:1]]
        found = {
            "verdict": "refused",
            "error": type(error).__name__,
            "reason": first_line(error),
            "at": lines,
        }
    except AssertionError as error:
        internal = not traceback.extract_tb(error.__traceback__)[-1].filename.endswith(
            ("judge.py", "sweep.py")
        )
        verdict = "crashed" if internal and "torch/testing" not in traceback.format_exc() else "wrong"
        found = {"verdict": verdict, "reason": " ".join(str(error).split())[:300]}
    except Exception as error:
        places = [
            f"{Path(f.filename).name}:{f.lineno}" for f in traceback.extract_tb(error.__traceback__)[-4:]
        ]
        found = {"verdict": "crashed", "error": type(error).__name__, "reason": first_line(error)}
        where = error.where[:1] if isinstance(error, ThunderError) else ()
        found["at"] = [f"{Path(at.file).name}:{at.line} {at.text}" for at in where] or places
        if isinstance(error, InternalError | AttributeError | TypeError | KeyError):
            found["trace"] = traceback.format_exc()[-3000:]
    return found | {"seconds": round(time.perf_counter() - started, 1)}


def first_line(error: BaseException) -> str:
    """The first line of a message."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def called(call: Callable[..., Any], arguments: Arguments) -> Any:
    """The result of a call from a fixed seed, without gradients."""
    torch.manual_seed(SEED)
    with torch.no_grad():
        return deepcopy(call(**deepcopy(arguments)))


def same(actual: Any, expected: Any, tolerance: float, path: str) -> None:
    """Raises AssertionError unless results are the same, within rounding."""
    assert_same(actual, expected, tolerance=tolerance, path=path)


def ask_forward(built: Built, added: Arguments | None = None) -> None:
    """Two calls in evaluation."""
    eager, twin = built.model.eval(), deepcopy(built.model).eval()
    compiled = thunder.jit(twin)
    for number, arguments in enumerate((built.arguments, built.others)):
        given = {**arguments, **(added or {})}
        try:
            want = called(eager, given)
            same(called(eager, given), want, 0.0, "eager")
        except Exception as error:
            raise NotAJudge(f"eager: {first_line(error)}") from error
        try:
            same(called(compiled, given), want, 1e-4, f"result {number}")
        except REFUSALS:
            raise
        except Exception as error:
            if told_that_it_is_compiled(eager, compiled, given, error):
                raise AsCompiled(first_line(error)) from error
            raise
    if thunder.cache_misses(compiled) != 1:
        raise Recompiled("; ".join(f"{r.source}" for r in thunder.last_recompile_reasons(compiled)[:2]))


def told_that_it_is_compiled(
    eager: nn.Module, compiled: Callable[..., Any], given: Arguments, error: Exception
) -> bool:
    """Whether eager does as thunder did, once its question whether it is compiled is answered with yes."""
    with mock.patch("torch.compiler.is_compiling", return_value=True):
        try:
            want = called(eager, given)
        except Exception as other:
            return type(other) is type(error) and str(other) == str(error)
    try:
        same(called(compiled, given), want, 1e-4, "result as compiled")
    except Exception:
        return False
    return True


def ask_masked(built: Built) -> None:
    """Two calls in evaluation with a mask."""
    if not built.masks:
        raise NotAJudge("has no mask")
    ask_forward(built, built.masks)


def in_dtype(arguments: Arguments, dtype: torch.dtype) -> Arguments:
    """The arguments, floating-point tensors in `dtype`."""
    return {
        k: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v for k, v in arguments.items()
    }


def step(call: Callable[..., Any], model: nn.Module, arguments: Arguments) -> dict[str, Tensor | None]:
    """The gradients of a step from a fixed seed; the loss depends on every element of every result."""
    torch.manual_seed(SEED)
    model.zero_grad()
    found = [t for t in tensors(call(**arguments)) if t.is_floating_point() and t.requires_grad]
    if not found:
        raise NotAJudge("no result requires gradients")
    loss = torch.stack(
        [(t * torch.linspace(-1, 1, t.numel(), dtype=t.dtype).view(t.shape)).sum().double() for t in found]
    ).sum()
    loss.backward()
    return {n: None if p.grad is None else p.grad.clone() for n, p in model.named_parameters()}


def ask_training(built: Built) -> None:
    """Two steps in training mode from the same parameters, in float64 if eager can."""
    try:
        dtype, want, buffers = torch.float64, *eager_step(built, torch.float64)
    except Exception:
        try:
            dtype, want, buffers = torch.float32, *eager_step(built, torch.float32)
        except Exception as error:
            raise NotAJudge(f"eager: {first_line(error)}") from error
    twin, tolerance = deepcopy(built.model).to(dtype).train(), TOLERANCES[dtype]
    compiled = thunder.jit(twin)
    have = step(compiled, twin, in_dtype(built.arguments, dtype))
    missing = [n for n in want if (want[n] is None) != (have[n] is None)]
    assert not missing, f"only one has gradients for {missing[:3]}"
    sizes = [g.abs().nan_to_num(0.0).max() for g in want.values() if g is not None and g.numel()]
    scale = float(torch.stack(sizes).max())
    for name, expected in want.items():
        if expected is not None:
            same(have[name], expected, tolerance * max(scale, 1.0), f"gradient of {name}")
    same({n: b.clone() for n, b in twin.named_buffers()}, buffers, tolerance, "buffers")
    step(compiled, twin, in_dtype(built.others, dtype))
    if thunder.cache_misses(compiled) != 1:
        raise Recompiled("; ".join(f"{r.source}" for r in thunder.last_recompile_reasons(compiled)[:2]))


def eager_step(built: Built, dtype: torch.dtype) -> tuple[dict[str, Tensor | None], dict[str, Tensor]]:
    """Gradients and buffers after a step of eager's; raises if a second step is another one."""
    eager, again = (deepcopy(built.model).to(dtype).train() for _ in range(2))
    arguments = in_dtype(built.arguments, dtype)
    gradients = step(eager, eager, arguments)
    same(step(again, again, arguments), gradients, 1e-9 if dtype is torch.float64 else 1e-6, "eager")
    return gradients, dict(eager.named_buffers())


QUESTIONS: dict[str, Callable[[Built], None]] = {
    "forward": ask_forward,
    "masked": ask_masked,
    "training": ask_training,
}


def examine(family: str, stages: Iterable[str]) -> Answer:
    """The record of a family."""
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        built = build(family)
    except NotBuilt as error:
        return {"skipped": str(error)}
    record: Answer = {"class": type(built.model).__name__}
    return record | {stage: answer_of(QUESTIONS[stage], built) for stage in stages}


# -- all families --------------------------------------------------------------------------------------------


def sweep(names: list[str], stages: tuple[str, ...], jobs: int, limit: float) -> Iterator[tuple[str, Answer]]:
    """Families with their records, each examined in a process of its own, in the order in which they end."""
    context = multiprocessing.get_context("fork")
    waiting, running = names[::-1], {}

    def work(name: str, end: Any) -> None:
        end.send(examine(name, stages))

    while waiting or running:
        while waiting and len(running) < jobs:
            name = waiting.pop()
            receiving, sending = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(name, sending))
            process.start()
            sending.close()
            running[receiving] = (name, process, time.monotonic())
        ready = wait(list(running), timeout=1.0)
        for end, (name, process, started) in list(running.items()):
            if end in ready:
                try:
                    found = end.recv()
                except EOFError:
                    found = {"skipped": "the process died"}
            elif time.monotonic() - started > limit:
                found = {"late": limit}
            else:
                continue
            process.kill()
            process.join()
            del running[end]
            yield name, found


def show(name: str, record: Answer, details: bool) -> None:
    """A line for a family, with the reasons on lines of their own."""
    if "skipped" in record or "late" in record:
        print(f"{name:28} {record}", flush=True)
        return
    verdicts = "  ".join(
        f"{s} {record[s]['verdict']} ({record[s]['seconds']} s)" for s in STAGES if s in record
    )
    print(f"{name:28} {record['class']:40} {verdicts}", flush=True)
    for stage in STAGES:
        answer = record.get(stage, {})
        if details and answer.get("verdict") not in ("right", "not asked", None):
            print(
                f"    {stage}: {answer.get('error', '')} {answer['reason']}  {answer.get('at', '')}",
                flush=True,
            )
            print(answer.get("trace", ""), end="")


def summary(records: dict[str, Answer]) -> Iterator[str]:
    """Lines of what came of each question, and the reasons by how many families they hold up."""
    asked = {n: r for n, r in records.items() if "class" in r}
    late = sum("late" in r for r in records.values())
    yield f"{len(records)} families, {len(asked)} built and run by eager, {late} late"
    for stage in STAGES:
        answers = [r[stage] for r in asked.values() if stage in r]
        yield f"{stage}: " + ", ".join(
            f"{n} {v}" for v, n in Counter(a["verdict"] for a in answers).most_common()
        )
    reasons: dict[tuple[str, str], set[str]] = {}
    for name, record in asked.items():
        for stage in STAGES:
            answer = record.get(stage, {"verdict": "right"})
            if answer["verdict"] not in ("right", "not asked"):
                reasons.setdefault((answer["verdict"], answer["reason"][:140]), set()).add(name)
    for (verdict, reason), names in sorted(reasons.items(), key=lambda item: -len(item[1])):
        yield f"{len(names):4} {verdict}: {reason}   [{', '.join(sorted(names)[:6])}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", help="names of families; all if there are none")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a family")
    parser.add_argument("--stages", default=",".join(STAGES), help="the questions to ask")
    parser.add_argument("--details", action="store_true", help="the reason of each refusal and failure")
    parser.add_argument("--output", type=Path, help="a file for the records, in JSON")
    options = parser.parse_args()
    unknown = sorted(set(options.families) - set(families()))
    if unknown:
        parser.error(f"no families: {', '.join(unknown)}")
    records: dict[str, Answer] = {}
    for name, record in sweep(
        options.families or families(), tuple(options.stages.split(",")), options.jobs, options.limit
    ):
        records[name] = record
        show(name, record, options.details)
        if options.output:
            options.output.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
    print("\n".join(summary(records)))


if __name__ == "__main__":
    main()
