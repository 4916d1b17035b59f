"""`python -m thunder doctor [--json]`: a report on thunder, its plugins and the environment."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from thunder.commands.installation_checks import Finding, State, examined

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "doctor", help="report on the environment; exit status 1 if something is broken"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report; return 1 if something is broken."""
    report = examined()
    broken = [f for findings in report.values() for f in findings if f.state is State.BROKEN]
    print(_as_json(report) if options.json else _as_text(report, broken))
    return int(bool(broken))


def _as_json(report: Mapping[str, Sequence[Finding]]) -> str:
    return json.dumps({part: [asdict(f) for f in findings] for part, findings in report.items()}, indent=2)


def _as_text(report: Mapping[str, Sequence[Finding]], broken: Sequence[Finding]) -> str:
    lines = []
    for part, findings in report.items():
        lines.append(part)
        width = max((len(finding.name) for finding in findings), default=0)
        for finding in findings:
            mark = "" if finding.state is State.OK else f"[{finding.state}] "
            first, *more = finding.text.splitlines()
            lines.append(f"  {finding.name.ljust(width)}  {mark}{first}")
            lines += [f"  {'':{width}}    {line}" for line in more]
        if not findings:
            lines.append("  none")
    names = ", ".join(finding.name for finding in broken)
    return "\n".join([*lines, "", f"Broken: {names}." if broken else "Nothing is broken."])
