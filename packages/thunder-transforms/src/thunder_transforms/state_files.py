"""State dicts in files, read one tensor at a time."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from thunder.core.errors import InvalidArgument

__all__ = ["FileStateDict", "state_dict_of"]

#: what torch.save writes
_PICKLED = frozenset({".pt", ".pth", ".bin", ".ckpt"})
_INDEX = ".index.json"

_Files = str | os.PathLike[str]


def state_dict_of(source: Mapping[str, Any] | _Files | Sequence[_Files]) -> Mapping[str, Any]:
    """Return the state dict of a mapping, of a file or of several files; values of files are mapped memory.

    Files are those of safetensors, a folder of them, the ``….index.json`` of a sharded checkpoint, and what
    ``torch.save`` wrote (loaded with ``mmap=True, weights_only=True``). Raises InvalidArgument for other
    sources.
    """
    if isinstance(source, Mapping):
        return source
    if isinstance(source, (str, os.PathLike)):
        return _state_dict_at(Path(source))
    if isinstance(source, Sequence):
        return FileStateDict([Path(path) for path in source])
    raise InvalidArgument(
        f"{type(source).__name__} is not a state dict",
        hint="Pass a mapping from names to tensors, or the path of a file with one.",
    )


def _state_dict_at(path: Path) -> Mapping[str, Any]:
    if path.suffix in _PICKLED:
        loaded = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
        if isinstance(loaded, Mapping):
            return loaded
        raise InvalidArgument(
            f"{path} holds {type(loaded).__name__}, which is not a state dict",
            hint="Load the file, and pass the state dict in it.",
        )
    if path.name.endswith(_INDEX):
        shards = json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()
        return FileStateDict([path.parent / shard for shard in dict.fromkeys(shards)])
    if path.is_dir():
        files = sorted(path.glob("*.safetensors"))
        if not files:
            raise InvalidArgument(f"the folder {path} has no file of safetensors")
        return FileStateDict(files)
    return FileStateDict([path])


class FileStateDict(Mapping[str, torch.Tensor]):
    """The tensors of files of safetensors by name; each read maps one tensor of a file into memory."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files: dict[str, Any] = {}
        for path in paths:
            if path.suffix != ".safetensors":
                raise InvalidArgument(
                    f"{path.name} is not a file of safetensors",
                    hint="Files end in .safetensors; those of torch.save in .pt, .pth, .bin or .ckpt.",
                )
            file: Any = safe_open(path, framework="pt")
            self._files.update(dict.fromkeys(file.keys(), file))

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._files[name].get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)
