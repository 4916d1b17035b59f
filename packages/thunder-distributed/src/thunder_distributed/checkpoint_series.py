"""`thunder.distributed.Checkpoints`: the last checkpoints of a training, for restarts.

runs/step-000000000100              complete; two are kept, or as many as one wants
runs/step-000000000200
runs/step-000000000300.partial      being written
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException

from thunder.core.errors import InvalidArgument, UserError

from . import checkpoint_files
from .file_digests import CheckpointCorrupted
from .generator_states import generator_states, restore_generators
from .one_process import gathered_objects
from .training_state import Saved, load_checked, state_of

__all__ = ["CheckpointNotSaved", "Checkpoints"]

_NAME: Final = re.compile(r"step-(\d{12,})(\.previous)?")


class CheckpointNotSaved(UserError, RuntimeError):
    """A process could not write its part of a checkpoint; those before it are as they were."""


class Checkpoints:
    """The last checkpoints of a training, which are saved while it goes on.

        checkpoints = Checkpoints("runs/7b")
        step = checkpoints.load(model, optimizer)      # 0 if there is none
        while step < steps:
            …
            step += 1
            if step % 100 == 0:
                checkpoints.save(model, optimizer, step)
        checkpoints.wait()

    Every process calls each method. A checkpoint has the parameters, the buffers, the optimizer, the step and
    the generators of each process. It is complete or not there, and any number of processes, in any layout,
    loads it. All processes need the same file system.

    Args:
        folder: the folder of all checkpoints; it is made by the first save.
        keep: how many complete ones are kept; at least 1. With 1 there is none to go back to where files are
            corrupted.
        generators: generators of the user's by name, which are saved beside torch's and Python's.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        keep: int = 2,
        generators: Mapping[str, torch.Generator] | None = None,
    ) -> None:
        if keep < 1:
            raise InvalidArgument(
                f"keep={keep!r} keeps no checkpoint", hint="Keep at least 1; 2 is the default."
            )
        self.folder, self.keep, self.generators = Path(folder), keep, dict(generators or {})
        #: why the last `load` has passed over checkpoints, by their paths
        self.skipped: dict[Path, str] = {}

    def save(self, model: Any, optimizer: Any, step: int) -> Future[Any]:
        """Copy a model, its optimizer and the generators, and write the copy while training goes on.

        Return the future of the files. A save that is not complete yet is waited for first. Raises
        CheckpointNotSaved, in all processes, if that one has failed, and InvalidArgument for a parameter of
        the optimizer that the model does not have.
        """
        self.wait()
        state = state_of(model, optimizer, step)
        rank, _ = _rank_and_size()
        state["generators"] = {str(rank): generator_states(self.generators)}
        return checkpoint_files.async_save(state, self._path(step), no_dist=not dist.is_initialized())

    def wait(self) -> None:
        """Wait until the last save is complete, and remove the checkpoints that are too many.

        Raises CheckpointNotSaved if it has failed; then those before it are as they were.
        """
        try:
            checkpoint_files.wait_for_pending()
        except CheckpointException as error:
            self._remove()
            raise CheckpointNotSaved(
                "a checkpoint could not be saved",
                found={f"rank {rank}": _text(failure) for rank, (failure, _) in error.failures.items()},
                hint=f"The last complete one is {next(iter(self._complete()), 'none')}.",
            ) from error
        self._remove()

    def load(self, model: Any, optimizer: Any = None) -> int:
        """Load the last checkpoint whose files are what was written; return its step, 0 if there is none.

        One that is passed over is named in a warning of each process, and in `skipped`. The number of
        processes and their layout may be others than those that saved. Generators of processes that were
        there are as they were; further ones get new seeds, or the state of all if that was one.

        Raises CheckpointCorrupted if there are checkpoints and none of them is good, and InvalidArgument
        for a model with other names and for other groups of parameters.
        """
        checkpoint_files.wait_for_pending()
        no_dist = not dist.is_initialized()
        own = [str(path) for path in self._complete()]
        paths = own if no_dist else gathered_objects(own, "the search for checkpoints")[0]
        self.skipped = {}
        for path in map(Path, paths):
            try:
                checkpoint_files.check(path, needed=True, no_dist=no_dist)
            except CheckpointCorrupted as error:
                reason = "; ".join(f"{file} {why}" for file, why in error.facts.items())
                self.skipped[path] = reason
                warnings.warn(f"the checkpoint {path} is passed over: {reason}", stacklevel=2)
                continue
            return self._load(path, model, optimizer)
        if self.skipped:
            raise CheckpointCorrupted(
                f"no checkpoint of {self.folder} is good",
                found={path.name: reason for path, reason in self.skipped.items()},
                hint="Look at the disk. An empty folder begins the training again.",
            )
        return 0

    def _load(self, path: Path, model: Any, optimizer: Any) -> int:
        saved = Saved(path)
        others = {"generators": saved.nested("generators")}
        step = load_checked(model, optimizer, saved, others)
        rank, _ = _rank_and_size()
        restore_generators(others["generators"], rank, self.generators)
        return step

    def _path(self, step: int) -> Path:
        return self.folder / f"step-{step:012}"

    def _complete(self) -> list[Path]:
        """Return the paths of the complete checkpoints, the last one first."""
        steps = set[int]()
        for entry in self.folder.iterdir() if self.folder.is_dir() else ():
            match = _NAME.fullmatch(entry.name)
            if match and (entry / checkpoint_files.METADATA).exists():
                steps.add(int(match[1]))
        return [self._path(step) for step in sorted(steps, reverse=True)]

    def _remove(self) -> None:
        """Remove what interrupted saves have left, and the checkpoints that are too many, in one process."""
        if _rank_and_size()[0] or not self.folder.is_dir():
            return
        for path in self._complete()[self.keep :]:  # renamed: what is removed in part is no checkpoint
            path.rename(path.with_name(f"{path.name}.partial"))
        for path in self.folder.glob("step-*.partial"):
            shutil.rmtree(path)


def _rank_and_size() -> tuple[int, int]:
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
