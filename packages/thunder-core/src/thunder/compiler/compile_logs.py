"""What compiles report to Python's `logging`: one logger and one kind of event for each subject.

    THUNDER_LOGS=recompiles,decisions python train.py
    THUNDER_LOG_FILE=events.jsonl     python train.py

The first variable shows subjects on the standard error stream, the second writes events as JSON, one a line:
of the subjects of the first, or of all. Without them the loggers are those of any library, silent until a
program sets their level. Each record has the fields of its event, a dict, as its attribute `event`.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from thunder.base.errors import InvalidArgument, did_you_mean
from thunder.compiler.ledger import Explanation
from thunder.compiler.stats import CompileData, CompileStats
from thunder.plugins.specs import CompileEvent

__all__ = ["SUBJECTS", "configure_logs", "is_logged", "log_compile"]

#: the message of an event, and its own fields
Told = tuple[str, dict[str, Any]]

_ROOT: Final = logging.getLogger("thunder")


def _compiles(event: CompileEvent, data: CompileData, stats: CompileStats) -> Told | None:
    """Return that a compile has ended: the time of each stage (ns), or the error."""
    milliseconds = sum(event.stage_times.values()) / 1e6
    outcome = f"fails: {event.error}" if event.error is not None else f"in {milliseconds:.1f} ms"
    error = None if event.error is None else f"{type(event.error).__name__}: {event.error}"
    fields = {"stages_ns": dict(event.stage_times), "error": error, "tried": len(event.steps)}
    return f"{event.name} is compiled {outcome}", fields


def _recompiles(event: CompileEvent, data: CompileData, stats: CompileStats) -> Told | None:
    """Return why a program is compiled again: of each entry the first fact that does not hold."""
    if not event.reasons:
        return None
    reasons = [
        {"fact": r.fact, "expected": repr(r.expected), "found": repr(r.found), "source": r.source}
        for r in event.reasons
    ]
    text = "; ".join(map(str, event.reasons))
    return f"{event.name} is compiled again ({event.count}): {text}", {"reasons": reasons}


def _ledger(event: CompileEvent, data: CompileData, stats: CompileStats) -> Told | None:
    """Return which executor runs each call, and the refusals of others."""
    if event.entry is None:
        return None
    rows = Explanation.of_entry(event.entry, data.executors_list, data.transforms).rows
    calls = [
        {
            "trace": row.trace,
            "symbol": row.symbol,
            "executor": row.claimed_by,
            "via": row.via,
            "where": None if row.source is None else f"{row.source.file}:{row.source.line}",
            "refusals": [
                {"executor": r.executor, "code": r.code, "message": r.message} for r in row.refusals
            ],
        }
        for row in rows
    ]
    counts: dict[str, int] = {}
    for row in rows:
        name = row.claimed_by or row.via
        counts[name] = counts.get(name, 0) + 1
    text = ", ".join(f"{name} {count}" for name, count in counts.items())
    return f"calls of {event.name} by executor: {text or 'none'}", {"calls": calls}


def _decisions(event: CompileEvent, data: CompileData, stats: CompileStats) -> Told | None:
    """Return the questions about data that a program asks, and the answers that it is compiled for."""
    if event.entry is None or not event.entry.decisions:
        return None
    decisions = [{"question": d.question_text, "answer": repr(d.answer)} for d in event.entry.decisions]
    text = "; ".join(map(str, event.entry.decisions))
    return f"{event.name} is compiled for answers: {text}", {"decisions": decisions}


def _cache(event: CompileEvent, data: CompileData, stats: CompileStats) -> Told | None:
    """Return how many programs of an object there are, and how often one of them fitted a call."""
    programs, hits, misses = len(stats.interpreter_cache), stats.cache_hits, stats.cache_misses
    guards = 0 if event.entry is None else len(event.entry.guards)
    text = f"{event.name} has {programs} programs, {hits} hits and {misses} misses; {guards} guards last"
    return text, {"programs": programs, "hits": hits, "misses": misses, "guards": guards}


#: subject → the event that a compile has of it, or None
SUBJECTS: Final[Mapping[str, Callable[[CompileEvent, CompileData, CompileStats], Told | None]]] = {
    "compiles": _compiles,
    "recompiles": _recompiles,
    "ledger": _ledger,
    "decisions": _decisions,
    "cache": _cache,
}
_LOGGERS: Final = {subject: _ROOT.getChild(subject) for subject in SUBJECTS}


def is_logged() -> bool:
    """Return whether a compile has a logger that is on."""
    return any(logger.isEnabledFor(logging.INFO) for logger in _LOGGERS.values())


def log_compile(event: CompileEvent, data: CompileData, stats: CompileStats) -> None:
    """Log the events of a compile, each by the logger of its subject."""
    for subject, logger in _LOGGERS.items():
        if logger.isEnabledFor(logging.INFO) and (told := SUBJECTS[subject](event, data, stats)) is not None:
            message, fields = told
            about = {"subject": subject, "name": event.name, "count": event.count}
            logger.info("%s", message, extra={"event": about | fields})


class _JsonLines(logging.Formatter):
    """One event as a line of JSON: the time (s since 1970), the process, and the fields of the event."""

    def format(self, record: logging.LogRecord) -> str:
        event = getattr(record, "event", {"subject": record.name.removeprefix("thunder.")})
        fields = {"time": record.created, "process": record.process, **event, "message": record.getMessage()}
        return json.dumps(fields, ensure_ascii=False)


def configure_logs(environment: Mapping[str, str] = os.environ) -> None:
    """Set the loggers up as the environment variables say; a second call changes nothing.

    Raises InvalidArgument for a subject that is not among `SUBJECTS`, and a file that cannot be written.
    """
    subjects = _subjects(environment.get("THUNDER_LOGS", ""))
    path = environment.get("THUNDER_LOG_FILE", "")
    for subject in subjects or (SUBJECTS if path else ()):
        _LOGGERS[subject].setLevel(logging.INFO)
    shown = logging.Formatter("%(name)s: %(message)s")
    if subjects:
        _add("thunder's subjects", logging.StreamHandler, shown)
    if path:
        try:
            _add("thunder's events", lambda: logging.FileHandler(path, encoding="utf-8"), _JsonLines())
        except OSError as error:
            raise InvalidArgument(f"THUNDER_LOG_FILE={path!r} cannot be written: {error.strerror}") from error


def _subjects(value: str) -> Sequence[str]:
    names = [name.strip() for name in value.split(",") if name.strip()]
    for name in names:
        if name not in SUBJECTS:
            raise InvalidArgument(
                f"THUNDER_LOGS has the subject {name!r}, and there is none.{did_you_mean(name, SUBJECTS)}",
                found={"subjects": ", ".join(SUBJECTS)},
                hint="THUNDER_LOGS=recompiles,ledger shows two subjects; separate them by commas.",
            )
    return names


def _add(name: str, make: Callable[[], logging.Handler], formatter: logging.Formatter) -> None:
    """Add a handler to the logger of all subjects, unless it has been added."""
    if all(other.name != name for other in _ROOT.handlers):
        handler = make()
        handler.name = name
        handler.setFormatter(formatter)
        _ROOT.addHandler(handler)
