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
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
from transformers.utils import logging

from models.questions import QUESTIONS, REFUSALS, AsCompiled, NotAJudge, Recompiled, Wrong, first_line
from models.shrunken import Built, NotBuilt, build, families
from thunder.core.errors import ThunderError

RECORDED = Path(__file__).parents[1] / "tests" / "models" / "library.json"
PAGE = Path(__file__).parents[1] / "docs" / "models.md"
STAGES = ("forward", "masked", "training")
#: bytes of address space that a family may have
MEMORY = 12 << 30

Answer = dict[str, Any]


# -- one family ----------------------------------------------------------------------------------------------


#: what a question raises → what is said of it; anything else is a crash
VERDICTS = {
    NotAJudge: "not asked",
    AsCompiled: "as compiled",
    Recompiled: "recompiled",
    Wrong: "wrong",
    **dict.fromkeys(REFUSALS, "refused"),
}


def answer_of(question: Callable[[Built], None], built: Built) -> Answer:
    """What came of a question, as the record has it."""
    started = time.perf_counter()
    answer: Answer = {"verdict": "right"}
    try:
        question(built)
    except Exception as error:
        verdicts = [verdict for kind, verdict in VERDICTS.items() if isinstance(error, kind)]
        answer = {"verdict": (*verdicts, "crashed")[0], "error": type(error).__name__}
        answer |= {"reason": first_line(error), "at": place_of(error)}
        if not verdicts:
            answer["trace"] = traceback.format_exc()[-3000:]
    return answer | {"seconds": round(time.perf_counter() - started, 1)}


def place_of(error: Exception) -> str:
    """Where in the program it happened: the innermost line of a file that is not thunder's."""
    if isinstance(error, ThunderError) and error.where:
        return f"{Path(error.where[0].file).name}:{error.where[0].line}  {error.where[0].text}"
    lines = [f for f in traceback.extract_tb(error.__traceback__) if "/thunder/" not in f.filename]
    return f"{Path(lines[-1].filename).name}:{lines[-1].lineno}"


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
