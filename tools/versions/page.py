"""The tables of docs/versions.md."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .runs import FAMILIES, ROOT, Installed, Run, by_suite, recorded

PAGE: Final = ROOT / "docs" / "versions.md"
REASONS: Final = ROOT / "tests" / "documents" / "version_reasons.toml"
#: what is between these lines is written
BEGIN, END = "<!-- runs -->", "<!-- end of runs -->"
NOT_EXPLAINED: Final = "not explained"


@dataclass(frozen=True, kw_only=True)
class Reason:
    """Why tests fail: patterns of their names, of the first line that they say, and of the versions."""

    text: str
    tests: str = ""
    says: str = ""
    torch: str = ""
    transformers: str = ""
    python: str = ""

    def explains(self, test: str, says: str, on: Installed) -> bool:
        """Return whether all patterns are found; those of versions match from the beginning."""
        return (
            re.search(self.tests, test) is not None
            and re.search(self.says, says) is not None
            and all(
                re.match(getattr(self, of), getattr(on, of)) for of in ("torch", "transformers", "python")
            )
        )


def reasons() -> list[Reason]:
    """Return the reasons that are known; the first that explains a failure is its reason."""
    entries: list[dict[str, Any]] = tomllib.loads(REASONS.read_text(encoding="utf-8"))["reason"]
    return [Reason(**entry) for entry in entries]


def reason_of(test: str, says: str, on: Installed, known: Sequence[Reason]) -> str:
    """Return the text of the first reason that explains a failure."""
    return next((reason.text for reason in known if reason.explains(test, says, on)), NOT_EXPLAINED)


def _cell(run: Run | None) -> str:
    return "-" if run is None else f"{run.passed} / {run.skipped} / {len(run.failures)}"


def _heads(environments: Sequence[Installed]) -> list[str]:
    """Return a heading for each environment: the version of torch, and of what the first one has another."""
    heads = []
    for on in environments:
        others = [
            f"{name} {getattr(on, of)}"
            for of, name in (("python", "CPython"), ("transformers", "transformers"))
            if getattr(on, of) != getattr(environments[0], of)
        ]
        heads.append(", ".join([f"torch {on.torch}", *others]))
    return heads


def _lines(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    yield from (f"| {' | '.join(row)} |" for row in rows)
    yield ""


def _dates(runs: Sequence[Run]) -> str:
    dates = sorted({run.date for run in runs})
    return dates[0] if len(dates) == 1 else f"{dates[0]} to {dates[-1]}"


def _folders(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the table of folders: a column for each environment."""
    environments = sorted({run.on for run in runs}, key=lambda on: (tuple(map(int, on.torch.split("."))), on))
    of_environment = {on: [run for run in runs if run.on == on] for on in environments}
    rows = [[f"`{suite}`", *(_cell(found.get(on)) for on in environments)] for suite, found in by_suite(runs)]
    rows.append(["date", *(_dates(of_environment[on]) for on in environments)])
    rows.append(
        ["commits", *(", ".join(sorted({run.commit for run in of_environment[on]})) for on in environments)]
    )
    on = environments[0]
    yield f"Passed / skipped / failed, on CPython {on.python} where a column has no other."
    yield ""
    yield from _lines(["tests", *_heads(environments)], rows)


def _families(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the table of small models: a row for each transformers, with and without thunder-inductor."""
    ordered = sorted(runs, key=lambda run: tuple(map(int, run.on.transformers.split("."))))
    rows = [
        [
            run.on.transformers,
            "thunder-inductor" if run.suite == FAMILIES else "thunder-core alone",
            f"{run.passed} of {run.passed + len(run.failures)}",
            run.on.torch,
            run.date,
            run.commit,
        ]
        for run in ordered
    ]
    yield from _lines(["transformers", "with", "right", "torch", "date", "commit"], rows)


def _failures(runs: Sequence[Run], known: Sequence[Reason]) -> Iterator[str]:
    """Yield the table of what failed, by reason."""
    of_reason: dict[str, dict[str, list[str]]] = {}
    for run in runs:
        of_tests = run.suite.startswith("tests/")
        on = f"torch {run.on.torch}" if of_tests else f"transformers {run.on.transformers}"
        for test, says in run.failures.items():
            tests = of_reason.setdefault(reason_of(test, says, run.on, known), {})
            tests.setdefault(test, []).append(on)
    if not of_reason:
        yield from ("Nothing failed.", "")
        return
    rows = [[reason, *_grouped(tests)] for reason, tests in sorted(of_reason.items())]
    yield from _lines(["reason", "failed", "on"], rows)


def _grouped(tests: Mapping[str, Sequence[str]]) -> tuple[str, str]:
    """Return names of tests, those of a file together, and what they failed on."""
    files: dict[str, list[str]] = {}
    for test in sorted(tests):
        file, _, name = test.partition("::")
        files.setdefault(file, []).append(name.partition("[")[0])
    named = [
        f"`{file}`: " * bool(names[0]) + ", ".join(_counted(names)) if names[0] else file
        for file, names in files.items()
    ]
    return "; ".join(named), ", ".join(sorted({on for where in tests.values() for on in where}))


def _counted(names: Sequence[str]) -> Iterator[str]:
    yield from (f"`{name}`" + (f" ({count})" if count > 1 else "") for name, count in Counter(names).items())


def tables(runs: Sequence[Run], known: Sequence[Reason]) -> str:
    """Return the tables of the runs, in markdown."""
    of_tests = [run for run in runs if run.suite.startswith("tests/")]
    of_models = [run for run in runs if not run.suite.startswith("tests/")]
    lines = [
        *(_folders(of_tests) if of_tests else ()),
        *(["Small models of transformers' families:", "", *_families(of_models)] if of_models else ()),
        *(["What failed:", "", *_failures(runs, known)]),
    ]
    return "\n".join(lines)


def written(page: str) -> str:
    """Return the page with its tables written again. Raises ValueError if it has no place for them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"{PAGE} has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{tables(recorded(), reasons())}\n{END}{after}"
