"""Prints the seconds of CPU of the tests of a run: of each folder, and of the most expensive files and tests.

    hatch test --junitxml=.run.xml
    python tools/time_table.py .run.xml [--most 40]

CPU time is that of the test and of the processes that it began. It is the same on a busy machine as on a
quiet one, as wall time is not. What is computed at import of a test file is in no test's time.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from xml.etree import ElementTree


def times(report: Path) -> Iterator[tuple[str, str, float]]:
    """Yield file, name and seconds of each test in a report in JUnit's format."""
    for case in ElementTree.parse(report).iter("testcase"):
        seconds = case.find("properties/property[@name='cpu']")
        if seconds is not None:
            modules = [part for part in case.get("classname", "").split(".") if not part[:1].isupper()]
            yield "/".join(modules), case.get("name", ""), float(seconds.get("value", "0"))


def table(report: Path, most: int) -> str:
    """Return the tables of folders, files and tests, each with the `most` expensive rows and the sum."""
    sums: tuple[Counter[str], ...] = (Counter(), Counter(), Counter())
    for file, name, seconds in times(report):
        folder = "/".join(file.split("/")[:2])
        for counter, key in zip(sums, (folder, file, f"{file}::{name}"), strict=True):
            counter[key] += seconds  # type: ignore[assignment]  # a counter's values may be any numbers
    lines = [f"{sum(sums[0].values()):8.1f} seconds of CPU in all"]
    for counter in sums:
        lines += ["", *(f"{seconds:8.1f} {key}" for key, seconds in counter.most_common(most))]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables of a report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("report", type=Path)
    parser.add_argument("--most", type=int, default=40, help="rows of each table")
    options = parser.parse_args(arguments)
    print(table(options.report, options.most))


if __name__ == "__main__":
    main()
