"""Damaged and foreign artefacts: an error or a reason each, and nothing in them is executed."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import json
import random
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
import thunder_store
from thunder.core.entries import compile_data, compile_stats, dispatcher_of
from thunder_store.artefacts import Artefact, ArtefactError

SCALE = 2.0
LOG: list[float] = []


class Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(3, 3)
        self.shift = 0.5

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        LOG.append(1.0)
        return {"y": torch.relu(self.fc(x)) * SCALE + self.shift}


MODEL = Block()

#: what no artefact may do, as Python's audit events
_FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.fork",
    "subprocess.Popen",
    "socket.",
    "shutil.",
    "os.remove",
)
_seen: list[str] | None = None


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if _seen is not None:
        is_write = event == "open" and type(args[0]) is str and isinstance(args[1], str) and "w" in args[1]
        if event.startswith(_FORBIDDEN) or is_write:
            _seen.append(f"{event} {args}")


sys.addaudithook(_audit)


@contextmanager
def nothing_happens() -> Iterator[None]:
    """Check that no process is begun, nothing written, removed or sent within the context."""
    global _seen
    _seen = []
    try:
        yield
        assert _seen == []
    finally:
        _seen = None


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """An artefact, and the request of a call that it has a program for."""
    path = tmp_path_factory.mktemp("artefacts") / "block.thunder"
    x = torch.randn(2, 3)
    compiled = thunder.jit(MODEL, executors=["torch"])
    compiled(x)["y"].sum().backward()
    compiled(torch.randn(5, 3))["y"].sum().backward()  # a program of symbolic sizes
    assert thunder.save(compiled, path) == []
    entry = compile_stats(compiled).interpreter_cache[0]
    request = dataclasses.replace(dispatcher_of(compiled).request(entry.plan), args=(x,))
    found = Artefact(path).find(request, compile_data(compiled))
    assert found is not None, thunder_store.events()
    return path, (request, compile_data(compiled))


def damaged(content: bytes, chance: random.Random) -> bytes:
    """Return bytes with damage: flipped, cut off, inserted, moved, or zeros."""
    at = chance.randrange(len(content))
    kind = chance.randrange(5)
    if kind == 0:
        return content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]
    if kind == 1:
        return content[:at]
    if kind == 2:
        return content[:at] + chance.randbytes(chance.randrange(1, 50)) + content[at:]
    if kind == 3:
        to = chance.randrange(len(content))
        return content[at:to] + content[:at] + content[to:]
    return content[:at] + bytes(min(64, len(content) - at)) + content[at + 64 :]


def cases(whole_run: bool, most: int) -> range:
    """Return the seeds of a run."""
    return range(most if whole_run else most // 200)


def test_a_damaged_file_is_an_error(saved: tuple[Path, Any], tmp_path: Path, whole_run: bool) -> None:
    path, _ = saved
    content, intact = path.read_bytes(), Artefact(path).programs
    file = tmp_path / "damaged"
    refused = 0
    for seed in cases(whole_run, 5_000):
        file.write_bytes(damaged(content, random.Random(seed)))
        with nothing_happens():
            try:
                found = Artefact(file)
            except ArtefactError:
                refused += 1
            else:  # the damage is in what a zip file says beside the texts
                assert found.programs == intact
    assert refused > 0.8 * len(cases(whole_run, 5_000))


_STRANGE = (
    None,
    True,
    -1,
    10**9,
    "",
    "os",
    "os.system",
    "__import__",
    [],
    {},
    ["o", 0],
    ["p", 10**6],
    ["fn"],
    {"x": 1},
    [["o"]],
)


def mutated(tree: Any, chance: random.Random) -> Any:
    """Return a tree of JSON in which one place is another one: foreign, and well-formed."""
    tree = copy.deepcopy(tree)
    node, places = tree, []
    while isinstance(node, dict | list) and node:
        key = chance.choice(list(node)) if isinstance(node, dict) else chance.randrange(len(node))
        places.append((node, key))
        if chance.random() < 0.15:
            break
        node = node[key]
    owner, key = places[-1]
    kind = chance.randrange(4)
    if kind == 0:
        del owner[key]
    elif kind == 1 and isinstance(owner, list):
        owner.insert(key, copy.deepcopy(chance.choice(owner)))
    elif kind == 2 and type(owner[key]) is str and owner[key]:
        at = chance.randrange(len(owner[key]))
        words = ("os.system", "()", ".__class__", "__import__('os')", "\n", "x", "eval", "torch.load", '"')
        owner[key] = owner[key][:at] + chance.choice(words) + owner[key][at + chance.randrange(3) :]
    else:
        owner[key] = chance.choice(_STRANGE)
    return tree


def test_a_foreign_program_is_a_reason_or_a_program(saved: tuple[Path, Any], whole_run: bool) -> None:
    path, (request, data) = saved
    artefact = Artefact(path)
    programs, not_used = artefact.programs, 0
    for seed in cases(whole_run, 5_000):
        artefact.programs = [mutated(programs[0], random.Random(seed))]
        if type(artefact.programs[0]) is not dict or "settings" not in artefact.programs[0]:
            continue
        with nothing_happens():
            found = artefact.find(request, data)
        event = thunder_store.events()[-1]
        assert event.kind == ("hit" if found is not None else "not used")
        not_used += found is None
    assert not_used > 0.3 * len(cases(whole_run, 5_000))


def rewritten(path: Path, to: Path, name: str, text: str) -> None:
    """Write an artefact with another text, and with the digests of a foreign author."""
    with zipfile.ZipFile(path) as file:
        texts = {m: file.read(m).decode() for m in file.namelist()}
    texts[name] = text
    outer = json.loads(texts["artefact.json"])
    index = json.loads(outer["index"])
    index["files"] = {
        m: hashlib.sha256(t.encode()).hexdigest() for m, t in texts.items() if m in index["files"]
    }
    body = json.dumps(index)
    texts["artefact.json"] = json.dumps({"digest": hashlib.sha256(body.encode()).hexdigest(), "index": body})
    with zipfile.ZipFile(to, "w") as file:
        for member, content in texts.items():
            file.writestr(member, content)


def test_a_foreign_statement_is_refused_by_name(saved: tuple[Path, Any], tmp_path: Path) -> None:
    path, _ = saved
    with zipfile.ZipFile(path) as file:
        name = next(m for m in file.namelist() if m.endswith("forward.py"))
        text = file.read(name).decode()
    head, _, rest = text.partition("return ")
    rewritten(path, tmp_path / "foreign", name, f"{head}__import__('os').system('false')\n  return {rest}")
    loaded = thunder.load(tmp_path / "foreign", MODEL)
    x = torch.randn(2, 3)
    with nothing_happens():
        found = loaded(x)["y"]
    torch.testing.assert_close(found, MODEL(x)["y"])
    assert any("a call of" in event.reason for event in thunder_store.events()[-2:])
