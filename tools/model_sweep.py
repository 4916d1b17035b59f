"""Compiles a small model of every family of the `transformers` library, unmodified, and compares with eager.

    python tools/model_sweep.py [family …] [-j 2] [--limit SECONDS] [--details] [--output FILE]
    python tools/model_sweep.py --record       all families, for the page docs/models.md
    python tools/model_sweep.py --page         writes the page from what was recorded; --check only compares

A process a family, with a time limit. Three questions are asked of each family: the forward in evaluation,
called twice with different data; the forward with a padding mask; a training step with the gradients of all
parameters, in float64 where eager can. The answers are: right; refused, by an error of thunder's that names
a line; recompiled, where the second call did not use the program of the first; as compiled, where eager does
the same once `torch.compiler.is_compiling()` is true for it as well; wrong, where a number or a type is not
eager's; crashed, by any other exception; not comparable, where eager cannot do it, or not twice the same way.
Families that eager cannot run from a small configuration are counted and left out.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import re
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

import summaries
from models.family_checks import QUESTIONS, REFUSALS, AsCompiled, NotAJudge, Recompiled, Wrong, first_line
from models.shrunken import Built, NotBuilt, build, families
from thunder.base.errors import ThunderError

RECORDED = Path(__file__).parents[1] / "tests" / "models" / "library.json"
PAGE = Path(__file__).parents[1] / "docs" / "models.md"
#: question → in words
STAGES = {"forward": "forward", "masked": "with a padding mask", "training": "training step"}
#: bytes of address space that a family may have
MEMORY = 12 << 30

Answer = dict[str, Any]
Records = dict[str, Answer]


# -- one family ----------------------------------------------------------------------------------------------


#: what a question raises → what is said of it; anything else is a crash
VERDICTS: dict[type[Exception], str] = {
    NotAJudge: "not comparable",
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
        reason = re.sub(r"\S*/site-packages/", "", first_line(error))
        answer |= {"reason": reason, "at": place_of(error)}
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
    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
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
    waiting = names[::-1]
    running: dict[Any, tuple[str, Any, float]] = {}

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
        if details and answer.get("verdict") not in ("right", "not comparable", None):
            print(
                f"    {stage}: {answer.get('error', '')} {answer['reason']}  {answer.get('at', '')}",
                flush=True,
            )
            print(answer.get("trace", ""), end="")


def asked(records: Records) -> Records:
    """The families that eager ran."""
    return {name: record for name, record in records.items() if "class" in record}


def reasons(records: Records) -> list[tuple[str, str, list[str]]]:
    """Verdicts other than right with their reasons and families, the one that holds up most of them first."""
    found: dict[tuple[str, str], set[str]] = {}
    for name, record in asked(records).items():
        for stage in STAGES:
            answer = record.get(stage, {"verdict": "right"})
            if answer["verdict"] not in ("right", "not comparable"):
                found.setdefault((answer["verdict"], answer["reason"][:140]), set()).add(name)
    return [(*key, sorted(names)) for key, names in sorted(found.items(), key=lambda i: (-len(i[1]), i[0]))]


def counted(records: Records, stage: str) -> Counter[str]:
    """How many families have which verdict."""
    return Counter(r[stage]["verdict"] for r in asked(records).values() if stage in r)


def summary(records: Records) -> Iterator[str]:
    """Lines of what came of each question, and the reasons by how many families they hold up."""
    late = sum("late" in record for record in records.values())
    yield f"{len(records)} families, {len(asked(records))} built and run by eager, {late} late"
    for stage in STAGES:
        yield f"{stage}: " + ", ".join(f"{n} {v}" for v, n in counted(records, stage).most_common())
    for verdict, reason, names in reasons(records):
        yield f"{len(names):4} {verdict}: {reason}   [{', '.join(names[:6])}]"


# -- the record and its page ---------------------------------------------------------------------------------


def record(records: Records) -> None:
    """Puts the records among those that are kept, without what differs from run to run."""
    kept: Records = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    for name, found in records.items():
        kept[name] = {
            key: {k: v for k, v in value.items() if k in ("verdict", "reason", "at")}
            if isinstance(value, dict)
            else value
            for key, value in found.items()
        }
    RECORDED.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
    summaries.write(RECORDED)


HEAD = """# Models

The families of the `transformers` library, compiled unmodified and compared with eager. A family is built
from its configuration class, made small by the names of its fields, with random weights; its arguments follow
from the names of the parameters of `forward`. `tools/model_sweep.py --page` writes this page from the results
of `tools/model_sweep.py --record`; each run of the tests checks the families in `tests/models`.

- **right**: values, types, keys and strides of everything that it returns are eager's, for two calls with
  different data, of which the second runs the program of the first. In training, so are the gradients of all
  parameters, in float64 where eager can, and the buffers.
- **recompiled**: eager's results; the second call compiles a program of its own, since a decision on data,
  such as which tokens an expert receives, has another answer, or the first call has changed the model.
- **refused**: a typed error names the line and says what to do.
- **as compiled**: equal to eager with `torch.compiler.is_compiling()` true, as it is in a compiled program:
  a few families then take another branch.
- **wrong**: different from eager. **crashed**: an error that is not thunder's own refusal.
- **not comparable**: eager fails, or gives different results in two runs, or the family has no mask.
"""


def page(records: Records) -> str:
    """The text of the page."""
    ran, late = asked(records), [name for name, r in records.items() if "late" in r]
    lines = [HEAD, f"{len(records)} families have a configuration. Of {len(ran)} eager runs a small model."]
    lines += [f"Not ready in time: {', '.join(late)}."] if late else []
    verdicts = ("right", "refused", "as compiled", "recompiled", "wrong", "crashed", "not comparable")
    lines += ["", f"| | {' | '.join(verdicts)} |", "|---|" + "--:|" * len(verdicts)]
    for stage, words in STAGES.items():
        counts = counted(records, stage)
        lines.append(f"| {words} | {' | '.join(str(counts[v]) for v in verdicts)} |")
    lines += ["", "## What is not right", "", "| families | | reason |", "|---|---|---|"]
    for verdict, reason, names in reasons(records):
        text = " ".join(reason.replace("|", "\\|").split())
        lines.append(f"| {', '.join(names)} | {verdict} | {text} |")
    lines += ["", "## What is right", "", "Forward: " + ", ".join(_right(ran, "forward")) + "."]
    lines += ["", "Training: " + ", ".join(_right(ran, "training")) + "."]
    return "\n".join(lines) + "\n"


def _right(records: Records, stage: str) -> list[str]:
    return sorted(name for name, r in records.items() if r[stage]["verdict"] == "right")


def keep_page(check: bool) -> int:
    """Writes the page, or says whether it is what the record gives."""
    text = page(json.loads(RECORDED.read_text()))
    if check:
        return 0 if PAGE.read_text() == text else print(f"{PAGE} is not up to date") or 1
    PAGE.write_text(text)
    return 0


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("families", nargs="*", help="names of families; all if there are none")
    parser.add_argument("-j", "--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds for a family")
    parser.add_argument("--stages", default=",".join(STAGES), help="the questions to ask")
    parser.add_argument("--details", action="store_true", help="the reason of each refusal and failure")
    parser.add_argument("--output", type=Path, help="a file for the records, in JSON")
    parser.add_argument("--record", action="store_true", help="keep the records for the page")
    parser.add_argument("--page", action="store_true", help="write the page, and sweep nothing")
    parser.add_argument("--check", action="store_true", help="compare the page, and sweep nothing")
    given = parser.parse_args()
    unknown = sorted({*given.families} - {*families()} | {*given.stages.split(",")} - {*STAGES})
    if unknown:
        parser.error(f"neither families nor questions: {', '.join(unknown)}")
    return given


def main() -> int:
    given = options()
    if given.page or given.check:
        return keep_page(given.check)
    records: Records = {}
    stages = tuple(given.stages.split(","))
    for name, found in sweep(given.families or families(), stages, given.jobs, given.limit):
        records[name] = found
        show(name, found, given.details)
        if given.output:
            given.output.write_text(json.dumps(records, indent=1, sort_keys=True) + "\n")
    if given.record:
        record(records)
    print("\n".join(summary(records)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
