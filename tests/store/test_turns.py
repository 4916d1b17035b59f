"""Processes take turns in compiling a program; who fails or ends leaves the turn to the next."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import pytest

from thunder_store import turns
from thunder_store.turns import Turns

KEY = "0123456789abcdef"


class Compile:
    """A compile whose turn it is."""


def waits(folder: Path, key: str = KEY) -> bool:
    """Return whether a process has to wait for its turn."""
    child = os.fork()
    if child == 0:
        turns._LONGEST = 0.0
        os._exit(int(Turns.of(folder).wait(key, Compile())))
    return bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_one_process_has_a_turn_until_it_ends_it(tmp_path: Path) -> None:
    own, compile = Turns.of(tmp_path), Compile()
    assert not own.wait(KEY, compile)
    assert waits(tmp_path)
    assert not waits(tmp_path, f"f{KEY}"), "another program is another turn"
    own.end(KEY)
    assert not waits(tmp_path)


def test_a_compile_that_fails_ends_its_turn(tmp_path: Path) -> None:
    compile = Compile()
    assert not Turns.of(tmp_path).wait(KEY, compile)
    assert waits(tmp_path)
    del compile
    gc.collect()
    assert not waits(tmp_path)


def test_a_process_that_ends_ends_its_turn(tmp_path: Path) -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        compile = Compile()
        Turns.of(tmp_path).wait(KEY, compile)
        os.write(write, b"1")
        time.sleep(60)
        os._exit(0)
    assert os.read(read, 1) == b"1"
    assert waits(tmp_path)
    os.kill(child, 9)
    os.waitpid(child, 0)
    assert not waits(tmp_path)


def test_a_compile_within_a_compile_does_not_wait(tmp_path: Path) -> None:
    outer, inner = Compile(), Compile()
    assert not Turns.of(tmp_path).wait(KEY, outer)
    assert not Turns.of(tmp_path).wait(KEY, inner)


def test_who_has_waited_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own, compile = Turns.of(tmp_path), Compile()
    assert not own.wait(KEY, compile)
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        monkeypatch.setattr(time, "sleep", lambda seconds: os.write(write, b"1"))
        os._exit(int(Turns.of(tmp_path).wait(KEY, Compile())))
    assert os.read(read, 1) == b"1", "it waits"
    own.end(KEY)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1


def test_a_directory_that_cannot_be_written_to_has_no_turns(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not Turns.of(tmp_path / "file" / "below").wait(KEY, Compile())
    Turns.of(tmp_path / "file" / "below").end(KEY)
