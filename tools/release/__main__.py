"""`python -m tools.release build` and `python -m tools.release check`."""

from __future__ import annotations

import argparse
import contextlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name
from packaging.version import Version
from tools.release import contents
from tools.release.builds import (
    OTHERWISE,
    ROOT,
    Built,
    build,
    differences,
    other_tree,
    packages,
    source_date,
    unpacked,
    version_of_core,
)
from tools.release.contents import Wheel
from tools.release.findings import Findings
from tools.release.installations import (
    Environment,
    Failed,
    readme_lines,
    torch_environment,
    torch_requirement,
)
from tools.release.local_index import serve, usual_index

PROGRAM: Final = Path(__file__).with_name("program.py")
TOGETHER: Final = "all packages"


def check_builds(work: Path, findings: Findings) -> dict[str, Built]:
    """Build everything twice, and wheels from the source distributions; compare; return the first files."""
    date, folders = source_date(), packages()
    again = other_tree(ROOT, work / "other place")
    built = {}
    for name, folder in folders.items():
        first = built[name] = build(folder, work / "dist", date)
        second = build(again[name], work / "again", date, OTHERWISE)
        faults = [*differences(first.wheel, second.wheel), *differences(first.sdist, second.sdist)]
        findings.add(name, "reproducible", faults)
        source = unpacked(first.sdist, work / "unpacked" / name)
        third = build(source, work / "of sdist" / name, date)
        findings.add(name, "wheel of sdist", differences(first.wheel, third.wheel))
    return built


def check_contents(built: Mapping[str, Built], findings: Findings) -> dict[str, Wheel]:
    """Check what the packages say of themselves and of each other; return the wheels."""
    wheels = {name: Wheel(files.wheel) for name, files in built.items()}
    version = wheels["thunder-core"].metadata.version
    for name, wheel in wheels.items():
        for check, function in contents.CHECKS.items():
            findings.add(name, check, function(wheel, built[name]))
    for name, needs in contents.requirements_between(wheels).items():
        faults = [fault for need in needs for fault in contents.requirement_faults(need, version)]
        if wheels[name].metadata.version != version:
            faults.append(f"the version is {wheels[name].metadata.version}, and thunder-core's {version}")
        if name != "thunder-core" and not any(need.name == "thunder-core" for need in needs):
            faults.append("thunder-core is not required")
        findings.add(name, "requirements", faults)
    files = [str(path) for one in built.values() for path in (one.wheel, one.sdist)]
    command = [sys.executable, "-m", "twine", "check", "--strict", *files]
    said = subprocess.run(command, capture_output=True, text=True, check=False)
    findings.add(TOGETHER, "twine", [] if said.returncode == 0 else [said.stdout + said.stderr])
    findings.add(TOGETHER, "files", contents.overlaps(wheels))
    return wheels


def closure(name: str, wheels: Mapping[str, Wheel]) -> set[str]:
    """Return a package and all packages of ours that it requires, without extras."""
    found, left = set(), [name]
    while left:
        package = left.pop()
        if package not in found:
            found.add(package)
            needs = contents.requirements_between(wheels)[package]
            left += [
                str(canonicalize_name(need.name))
                for need in needs
                if need.marker is None or need.marker.evaluate()
            ]
    return found


def check_installed(
    what: str, requirements: Sequence[str], expected: set[str], wheels: Mapping[str, Wheel], made: Environment
) -> Iterator[tuple[str, list[str]]]:
    """Install requirements, then run a program and `doctor`; yield (check, faults)."""
    try:
        made.install(*requirements)
        here = made.ours(wheels)
        other = [f"installed are {sorted(here)}, expected {sorted(expected)}"] if here != expected else []
        made.pip("check")
        yield "installs", other
    except Failed as error:
        yield "installs", [str(error)]
        return
    modules = [module for name in sorted(here) for module in wheels[name].own_modules]
    commands = {
        "runs a program": (str(PROGRAM), ",".join(sorted(here)), *modules),
        "doctor": ("-m", "thunder", "doctor"),
    }
    for check, command in commands.items():
        try:
            made.run(*command)
            yield check, []
        except Failed as error:
            yield check, [f"{what}: {error}"]


def check_installations(
    work: Path, built: Mapping[str, Built], wheels: Mapping[str, Wheel], torch: str, findings: Findings,
    only: Sequence[str] = (),
) -> None:  # fmt: skip
    """Install each package alone, all together, and as the README says; in environments of their own."""
    files = {name: (one.wheel, one.sdist) for name, one in built.items()}
    cases = {name: ([name], closure(name, wheels)) for name in wheels}
    cases[TOGETHER] = (list(wheels), set(wheels))
    for line in readme_lines((ROOT / "README.md").read_text(encoding="utf-8"), wheels):
        named = [closure(name, wheels) for name in wheels if name in line]
        cases[f"pip install {' '.join(line)}"] = (line, set().union(*named))
    if only:
        cases = {name: case for name, case in cases.items() if name in only}
    elif not any(name.startswith("pip install") for name in cases):
        findings.add("README", "installs", ["README.md has no line `pip install` with packages of ours"])
    with serve(files, usual_index()) as index:
        shared = torch_environment(work / "torch", index, torch)
        findings.add(torch, "installs")
        for number, (name, (requirements, expected)) in enumerate(cases.items()):
            made = Environment(work / f"environment-{number}", index, shared)
            for check, faults in check_installed(name, requirements, expected, wheels, made):
                findings.add(name, check, faults)
            shutil.rmtree(made.folder)


def check(arguments: argparse.Namespace) -> int:
    """Run all checks; return 0 if all passed."""
    findings = Findings()
    with contextlib.ExitStack() as stack:
        if arguments.keep:
            work = Path(arguments.keep).resolve()
            shutil.rmtree(work, ignore_errors=True)
            work.mkdir(parents=True)
        else:
            work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="thunder-release-")))
        built = check_builds(work, findings)
        wheels = check_contents(built, findings)
        if not arguments.no_install:
            check_installations(work, built, wheels, arguments.torch, findings, arguments.only)
    version = Version(str(wheels["thunder-core"].metadata.version))
    print(f"\n{findings.table()}\n")
    if findings.failed:
        print("failed: " + ", ".join(f"{row.package}: {row.check}" for row in findings.failed))
        return 1
    print(f"{len(built)} packages of version {version}: all {len(findings.rows)} checks passed")
    return 0


def build_all(arguments: argparse.Namespace) -> int:
    """Build all packages into a folder; print the files."""
    to = Path(arguments.to).resolve()
    shutil.rmtree(to, ignore_errors=True)
    date = source_date()
    for folder in packages().values():
        one = build(folder, to, date)
        print(one.wheel, one.sdist, sep="\n")
    return 0


def check_tag(arguments: argparse.Namespace) -> int:
    """Return 0 if a tag names the version of the packages, and the changelog has a section for it."""
    version = version_of_core()
    faults = [] if arguments.tag == f"v{version}" else [f"the version is {version}"]
    if f"\n## {version}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        faults.append(f"CHANGELOG.md has no section {version}")
    for fault in faults:
        print(f"{arguments.tag}: {fault}", file=sys.stderr)
    return 1 if faults else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that is named."""
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__)
    commands = parser.add_subparsers(required=True)
    checking = commands.add_parser("check", help="build twice, compare, install, run")
    checking.add_argument("--only", nargs="+", default=(), metavar="PACKAGE", help="install these alone")
    checking.add_argument("--keep", metavar="FOLDER", help="work here, and leave everything there")
    checking.add_argument("--no-install", action="store_true", help="make no environments")
    checking.add_argument("--torch", default=torch_requirement(), help="the torch of all environments")
    checking.set_defaults(function=check)
    building = commands.add_parser("build", help="build all packages")
    building.add_argument("to", nargs="?", default=ROOT / "dist", help="the folder, which is emptied first")
    building.set_defaults(function=build_all)
    tagging = commands.add_parser("tag", help="compare a tag with the version")
    tagging.add_argument("tag")
    tagging.set_defaults(function=check_tag)
    chosen = parser.parse_args(arguments)
    return int(chosen.function(chosen))


if __name__ == "__main__":
    raise SystemExit(main())
