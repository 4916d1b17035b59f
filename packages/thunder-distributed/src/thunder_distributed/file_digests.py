"""Digests of the files of checkpoints, which are computed while they are written and compared before a load.

    {".metadata": [1714, "5f70…"], "__0_0.distcp": [4096, "9a0c…"]}        digests.json: bytes and SHA-256

They are those of what was meant to be written: a file that a disk has cut short or changed differs.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, cast

import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystem

from thunder.core.errors import UserError

from .lost_processes import naming_missing

__all__ = ["DIGESTS", "CheckpointCorrupted", "FileDigest", "HashedFiles", "check_files", "write_digests"]

DIGESTS: Final = "digests.json"


class CheckpointCorrupted(UserError, RuntimeError):
    """A file of a checkpoint is not what was written."""


@dataclass(frozen=True)
class FileDigest:
    """The length (bytes) and the SHA-256 of what was written to a file."""

    file: str
    nbytes: int
    sha256: str


class _Hashed:
    """A file that is written from its beginning to its end, and the digest of what was written."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream, self._hash, self.nbytes = stream, hashlib.sha256(), 0
        self.tell, self.flush, self.close = stream.tell, stream.flush, stream.close

    def write(self, data: Any) -> int:
        self._hash.update(data)
        written = self._stream.write(data)
        self.nbytes += written
        return written

    def fileno(self) -> int:
        """Return the descriptor, which is asked for to sync the file: what is buffered is written before."""
        self._stream.flush()
        return self._stream.fileno()

    def hexdigest(self) -> str:
        return self._hash.hexdigest()


class HashedFiles(FileSystem):
    """The files of a folder, with the digests of those that were written, by name."""

    def __init__(self) -> None:
        self.digests: dict[str, FileDigest] = {}

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """Open a file; one that is written is hashed."""
        with super().create_stream(path, mode) as stream:
            if mode != "wb":
                yield stream
                return
            yield (hashed := _Hashed(cast(IO[bytes], stream)))
            name = Path(path).name
            self.digests[name] = FileDigest(name, hashed.nbytes, hashed.hexdigest())

    def rename(self, path: str | os.PathLike[str], new_path: str | os.PathLike[str]) -> None:
        """Rename a file, and its digest."""
        super().rename(path, new_path)
        old = self.digests.pop(Path(path).name, None)
        if old is not None:
            name = Path(new_path).name
            self.digests[name] = FileDigest(name, old.nbytes, old.sha256)


def write_digests(folder: Path, digests: Iterable[FileDigest]) -> None:
    """Write the digests of the files of a checkpoint beside them, to the disk."""
    with open(folder / DIGESTS, "w", encoding="utf-8") as file:
        json.dump({d.file: [d.nbytes, d.sha256] for d in sorted(digests, key=lambda d: d.file)}, file)
        file.flush()
        os.fsync(file.fileno())


def check_files(folder: Path, group: dist.ProcessGroup | None, needed: bool) -> None:
    """Compare the files of a checkpoint with their digests; each process of a group has some of them.

    Every process of the group has to call it; None for one process that compares all. A folder without
    digests, which torch or an earlier version has saved, is not compared, unless they are `needed`. Raises
    CheckpointCorrupted with the files in all processes.
    """
    if group is None:
        wrong = _differences(folder, 0, 1, needed)
    else:
        found: list[Any] = [None] * dist.get_world_size(group)
        own = _differences(folder, dist.get_rank(group), len(found), needed)
        with naming_missing("the check of a checkpoint", group.group_name):
            dist.all_gather_object(found, own, group=group)
        wrong = {file: reason for each in found for file, reason in each.items()}
    if wrong:
        raise CheckpointCorrupted(
            f"the checkpoint {folder} is corrupted",
            found=dict(sorted(wrong.items())),
            hint="Load an earlier one: thunder.distributed.Checkpoints keeps several, and does so.",
        )


def _differences(folder: Path, rank: int, size: int, needed: bool) -> dict[str, str]:
    """Return what differs of this process's share of the files, by name."""
    try:
        text = (folder / DIGESTS).read_text(encoding="utf-8")
    except FileNotFoundError:
        return {DIGESTS: "is missing"} if needed else {}
    try:
        expected: Mapping[str, tuple[int, str]] = dict(json.loads(text))
    except ValueError:
        return {DIGESTS: "is not the text that was written"}
    wrong = {}
    for file in sorted(expected)[rank::size]:
        reason = _difference(folder / file, *expected[file])
        if reason:
            wrong[file] = reason
    return wrong


def _difference(path: Path, nbytes: int, sha256: str) -> str:
    """Return how a file differs from what was written, empty if it does not."""
    try:
        found = path.stat().st_size
        if found != nbytes:
            return f"has {found} bytes, and {nbytes} were written"
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return "" if digest == sha256 else "has other bytes than those that were written"
