"""Toy plugins: modules made on the spot, and whole distributions in a folder."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from thunder.plugins import PluginManager
from thunder.plugins.discovery import Candidate


def add_module(monkeypatch: pytest.MonkeyPatch, name: str, **contents: Any) -> ModuleType:
    """A module that can be imported under `name` while the test runs."""
    module = ModuleType(name)
    vars(module).update(contents)
    monkeypatch.setitem(sys.modules, name, module)
    return module


def manager(
    *candidates: Candidate, environment: Mapping[str, str] | None = None, **more: Any
) -> PluginManager:
    """A manager that finds these candidates and nothing else."""
    return PluginManager(discover=lambda: candidates, environment=environment or {}, **more)


def candidate(name: str, target: str | None = None, **more: Any) -> Candidate:
    """A candidate as the metadata of a distribution `thunder-<name>` would give it."""
    facts = {"distribution": f"thunder-{name}", "version": "0.3.1"} | more
    return Candidate(name=name, target=target or f"thunder_{name}", **facts)


def write_distribution(
    folder: Path, name: str, source: str, *, version: str = "0.3.1", requires: Iterable[str] = ()
) -> None:
    """A distribution `thunder-<name>` with the module `thunder_<name>`, as pip unpacks it."""
    (folder / f"thunder_{name}.py").write_text(textwrap.dedent(source), encoding="utf-8")
    info = folder / f"thunder_{name}-{version}.dist-info"
    info.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: thunder-{name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {requirement}" for requirement in requires]
    (info / "METADATA").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[thunder.plugins]\n{name} = thunder_{name}\n", encoding="utf-8")
