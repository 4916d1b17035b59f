"""Facts of the machine that a table was measured on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

__all__ = ["machine_facts", "one_line"]

PACKAGES = ("torch", "thunder-core", "thunder-inductor", "litgpt")


def machine_facts(peer: str | None, threads: int = 1) -> dict[str, str | int]:
    """Return versions, processor and compiler; with a peer's interpreter, also its versions."""
    facts: dict[str, str | int] = {"python": platform.python_version(), "machine": platform.machine()}
    facts |= {"cpus": os.cpu_count() or 0, "threads": threads, "processor": _processor(), "load": _load()}
    for name in PACKAGES:
        try:
            facts[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    facts["compiler"] = _first_line([os.environ.get("CXX", "g++"), "--version"])
    if peer is not None:
        program = "import importlib.metadata as m; print(m.version('lightning-thunder'), m.version('torch'))"
        facts["lightning-thunder, torch of the peer"] = _first_line([peer, "-c", program])
    return facts


def one_line(facts: dict[str, str | int]) -> str:
    """Return the facts as one line of text."""
    return ", ".join(f"{name} {value}" for name, value in facts.items() if value != "")


def _processor() -> str:
    """Return the processor's name on Linux, else what `platform` has."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _load() -> str:
    """Return how many processes wanted to run in the last minute, on average."""
    return f"{os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""


def _first_line(command: list[str]) -> str:
    """Return the first line that a command prints, or nothing if it cannot be run."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return run.stdout.splitlines()[0] if run.stdout else ""
