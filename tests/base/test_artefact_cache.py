"""Compiled artefacts on disk: what is written is found, by equal versions only, and nothing else is read."""

from __future__ import annotations

import errno
import multiprocessing
import os
import warnings
from pathlib import Path

import pytest

from thunder.__main__ import main
from thunder.base.artefact_cache import ArtefactCache, ArtefactWarning, clear, entries
from thunder.base.errors import InvalidArgument

VERSIONS = {"acme": "1.0", "torch": "2.13"}


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_an_artefact_is_found_by_its_key_and_versions_alone() -> None:
    cache = ArtefactCache("acme", VERSIONS)
    assert cache.get("a") is None
    cache.put("a", b"\0code")
    assert ArtefactCache("acme", dict(reversed(VERSIONS.items()))).get("a") == b"\0code"
    assert cache.get("b") is None
    assert ArtefactCache("acme", {**VERSIONS, "torch": "2.15"}).get("a") is None
    assert ArtefactCache("other", VERSIONS).get("a") is None


def test_it_is_made_once() -> None:
    cache, made = ArtefactCache("acme", VERSIONS), []
    for _ in range(3):
        assert cache.get_or_make("k", lambda: made.append(1) or b"x") == b"x"
    assert made == [1]


@pytest.mark.parametrize("position", [0, 20, 60, -1])
def test_a_changed_byte_is_noticed_and_the_file_written_anew(position: int) -> None:
    cache = ArtefactCache("acme", VERSIONS)
    cache.put("a", b"the code")
    content = bytearray(cache.path("a").read_bytes())
    content[position] ^= 1
    cache.path("a").write_bytes(content)
    with pytest.warns(ArtefactWarning, match="is ignored: its content is not what was written"):
        assert cache.get_or_make("a", lambda: b"new") == b"new"
    assert cache.get("a") == b"new"


@pytest.mark.parametrize("size", [0, 5, 40, 100])
def test_a_shortened_file_is_ignored(size: int) -> None:
    cache = ArtefactCache("acme", VERSIONS)
    cache.put("a", b"the code" * 20)
    cache.path("a").write_bytes(cache.path("a").read_bytes()[:size])
    with pytest.warns(ArtefactWarning, match="not what was written"):
        assert cache.get("a") is None


def test_the_artefact_of_another_key_is_ignored_under_this_ones_name() -> None:
    cache = ArtefactCache("acme", VERSIONS)
    cache.put("a", b"the code of a")
    os.rename(cache.path("a"), cache.path("b"))
    with pytest.warns(ArtefactWarning, match="not what was written"):
        assert cache.get("b") is None


def test_a_file_that_others_can_write_to_is_ignored() -> None:
    cache = ArtefactCache("acme", VERSIONS)
    cache.put("a", b"code")
    assert cache.path("a").stat().st_mode & 0o077 == 0
    cache.path("a").chmod(0o666)
    with pytest.warns(ArtefactWarning, match="other users can write to it"):
        assert cache.get("a") is None


def test_a_file_of_another_user_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ArtefactCache("acme", VERSIONS)
    cache.put("a", b"code")
    monkeypatch.setattr(os, "getuid", lambda: cache.path("a").stat().st_uid + 1)
    with pytest.warns(ArtefactWarning, match="another user owns it"):
        assert cache.get("a") is None


def test_a_directory_that_cannot_be_written_costs_a_warning(directory: Path) -> None:
    directory.write_text("a file in its place")
    cache = ArtefactCache("acme", VERSIONS)
    with pytest.warns(ArtefactWarning, match="nothing can be written to"):
        cache.put("a", b"code")
    with warnings.catch_warnings(action="error"):
        cache.put("b", b"code")


def test_a_full_disk_leaves_no_file(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*paths: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = ArtefactCache("acme", VERSIONS)
    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.warns(ArtefactWarning, match="No space left on device"):
            cache.put("a", b"code")
    assert list(directory.rglob("*.*")) == []
    assert list((directory / "acme").iterdir()) == []
    cache.put("a", b"code")
    assert cache.get("a") == b"code"


def test_the_oldest_artefacts_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = ArtefactCache("acme", VERSIONS)
    for n, key in enumerate("abc"):
        cache.put(key, bytes(1000))
        os.utime(cache.path(key), (n, n))
    assert cache.get("a") is not None  # which makes it the one used last
    monkeypatch.setenv("THUNDER_CACHE_LIMIT", "3900")
    cache.put("d", bytes(1000))
    assert [key for key in "abcd" if cache.get(key) is not None] == ["a", "c", "d"]
    monkeypatch.setenv("THUNDER_CACHE_LIMIT", "much")
    with pytest.raises(InvalidArgument, match="THUNDER_CACHE_LIMIT is 'much'"):
        cache.put("e", b"")


def write_and_read(number: int) -> bool:
    cache = ArtefactCache("acme", VERSIONS)
    for i in range(40):
        cache.put("shared", bytes([number]) * 5000)
        content = cache.get("shared")
        if content is None or len(content) != 5000 or len(set(content)) != 1:
            return False
        clear("nothing") if i % 2 else cache.put(f"{number}", b"own")
    return True


def test_processes_share_a_directory() -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        assert pool.map(write_and_read, range(4)) == [True] * 4
    assert {entry.path.suffix for entry in entries()} == {".artefact"}


def test_a_package_names_a_directory_of_its_own() -> None:
    for name in ("", "../acme", "a/b", ".hidden"):
        with pytest.raises(InvalidArgument, match="does not name a package"):
            ArtefactCache(name, {})


def test_the_command_shows_and_clears_them(capsys: pytest.CaptureFixture[str], directory: Path) -> None:
    ArtefactCache("acme", VERSIONS).put("a", bytes(2_000_000))
    ArtefactCache("other", VERSIONS).put("a", b"")
    assert main(["cache"]) == 0
    out = capsys.readouterr().out
    assert str(directory) in out
    assert "acme: 1 artefacts, 2.0 MB" in out
    assert main(["cache", "--clear", "acme"]) == 0
    assert "removed 1 artefacts" in capsys.readouterr().out
    assert [entry.package for entry in entries()] == ["other"]
