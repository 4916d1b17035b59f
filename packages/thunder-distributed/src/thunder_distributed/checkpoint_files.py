"""The files of checkpoints, by Distributed Checkpoint of torch: saved at once, or while training goes on.

Note [A checkpoint is complete or not there]
A checkpoint is written beside its place, and renamed when all its files are on the disk. Whenever a process
ends, one of two folders is a complete checkpoint, the new one or the last one:

    run             the last one
    run.partial     the new one, while it is written
    run.previous    the last one, from its renaming until the new one is in its place

The digests of its files are written with it, and compared before it is loaded (`file_digests`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Final
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

from thunder.core.errors import InvalidArgument

from .file_digests import DIGESTS, FileDigest, HashedFiles, check_files, write_digests
from .lost_processes import naming_missing

__all__ = [
    "METADATA",
    "async_save",
    "check",
    "complete_folder",
    "load",
    "load_checked",
    "save",
    "wait_for_pending",
]

METADATA: Final = ".metadata"
#: the default group, or one that was given → the group in which saving communicates beside training
_saving_groups: WeakKeyDictionary[dist.ProcessGroup, dist.ProcessGroup] = WeakKeyDictionary()
#: the save that was begun last, which the next one waits for
_pending: list[Future[Any]] = []


def save(state_dict: dict[str, Any], path: str | os.PathLike[str], **kwargs: Any) -> Any:
    """Save a state dict with parts of tensors into a folder; every process has to call it.

    A checkpoint that is there already is replaced when the new one is complete (Note [A checkpoint is
    complete or not there]). The keyword arguments are those of `torch.distributed.checkpoint.save`. Raises
    InvalidArgument for a folder with other files.
    """
    wait_for_pending()
    with _naming_missing("the save of a checkpoint", kwargs):
        return state_dict_saver.save(state_dict, **_with_writer(path, kwargs))


def async_save(
    state_dict: Mapping[str, Any], path: str | os.PathLike[str], *, process_group: Any = None, **kwargs: Any
) -> Future[Any]:
    """Copy a state dict with parts of tensors, and save the copy while training goes on; return the future.

    Every process has to call it. The tensors may be changed as soon as it returns. A save that is not
    complete yet is waited for first, and its error raised. The files are complete when `result()` of the
    future returns, which raises the error of any process. The processes communicate in a gloo group of their
    own, so that collectives of programs do not mix with those of saving. The keyword arguments are those of
    `torch.distributed.checkpoint.async_save`.
    """
    wait_for_pending()
    copied = tree_map(_copied, dict(state_dict))
    future = state_dict_saver.async_save(
        copied,
        async_stager=_Copied(),
        process_group=_saving_group(process_group),
        **_with_writer(path, kwargs),
    )
    assert isinstance(future, Future), "what is staged already has one future"
    _pending.append(future)
    return future


def load(state_dict: dict[str, Any], path: str | os.PathLike[str], **kwargs: Any) -> Any:
    """Load a folder into the tensors of a state dict, whatever the number of processes that saved it.

    It is the last complete checkpoint that was saved there. The tensors of `get_model_state_dict` without
    options are those in use: the module has the values then. The keyword arguments are those of
    `torch.distributed.checkpoint.load`. Raises CheckpointCorrupted, in all processes, for files that are not
    what was written.
    """
    if not _is_local(path, kwargs, "storage_reader"):
        return state_dict_loader.load(state_dict, checkpoint_id=path, **kwargs)
    check(path, **kwargs)
    return load_checked(state_dict, path, **kwargs)


def check(path: str | os.PathLike[str], needed: bool = False, **kwargs: Any) -> None:
    """Compare the files of a folder with their digests, which may be missing unless they are needed.

    The keyword arguments are those of `load`. Raises CheckpointCorrupted in all processes.
    """
    wait_for_pending()
    check_files(complete_folder(path), _group_of(kwargs), needed)


def load_checked(state_dict: dict[str, Any], path: str | os.PathLike[str], **kwargs: Any) -> Any:
    """Load a folder whose files were compared with their digests."""
    with _naming_missing("the load of a checkpoint", kwargs):
        return state_dict_loader.load(state_dict, checkpoint_id=complete_folder(path), **kwargs)


def complete_folder(path: str | os.PathLike[str]) -> Path:
    """Return the folder of the last complete checkpoint that was saved under a path."""
    folder, previous = Path(path), _beside(path, "previous")
    if not (folder / METADATA).exists() and (previous / METADATA).exists():
        return previous
    return folder


def _naming_missing(what: str, kwargs: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Return the context that names a process which does not take part, if processes communicate."""
    group = _group_of(kwargs)
    return nullcontext() if group is None else naming_missing(what, group.group_name)


def _group_of(kwargs: Mapping[str, Any]) -> dist.ProcessGroup | None:
    """Return the group in which torch's function communicates; None for one process alone."""
    if kwargs.get("no_dist") or not dist.is_initialized():
        return None
    return kwargs.get("process_group") or dist.group.WORLD


def wait_for_pending() -> None:
    """Wait for the save that goes on; raise its error."""
    while _pending:
        _pending.pop().result()


def _is_local(path: str | os.PathLike[str], kwargs: Mapping[str, Any], other: str) -> bool:
    """Return whether a path is that of a folder, which the functions of this module write and read."""
    return kwargs.get(other) is None and "://" not in os.fspath(path)


def _with_writer(path: str | os.PathLike[str], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of torch's function that save into a folder."""
    if not _is_local(path, kwargs, "storage_writer"):
        return {"checkpoint_id": path, **kwargs}
    _check_folder(Path(path))
    return {**kwargs, "storage_writer": _CompleteWriter(path)}


def _check_folder(folder: Path) -> None:
    """Raise InvalidArgument for a folder with other files than those of a checkpoint, which would be lost."""
    others = [
        entry.name
        for entry in (folder.iterdir() if folder.is_dir() else ())
        if entry.name not in (METADATA, DIGESTS) and entry.suffix != ".distcp"
    ]
    if others or folder.is_file():
        raise InvalidArgument(
            f"{folder} has other files than those of a checkpoint",
            found={"files": ", ".join(sorted(others)[:5]) or "it is a file"},
            hint="A checkpoint replaces the folder: give the path of a new one.",
        )


def _beside(path: str | os.PathLike[str], suffix: str) -> Path:
    """Return the folder beside a checkpoint that a suffix names."""
    folder = Path(os.path.abspath(path))
    return folder.with_name(f"{folder.name}.{suffix}")


class _CompleteWriter(FileSystemWriter):
    """A writer after which a checkpoint is complete or not there, on the process that coordinates."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(_beside(path, "partial"), sync_files=True)
        self.fs = self._files = HashedFiles()
        self._folder, self._previous = Path(os.path.abspath(path)), _beside(path, "previous")
        self._partial = _beside(path, "partial")

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Return the plan; the folder is made when all processes have one."""
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        """Make the folder, without what an interrupted save has left there."""
        if self._partial.exists():
            shutil.rmtree(self._partial)
        self._partial.mkdir(parents=True)
        prepared: list[SavePlan] = super().prepare_global_plan(plans)
        return prepared

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> torch.futures.Future[list[WriteResult]]:
        """Write the files of this process; return what the coordinator is told, their digests among it."""
        written = super().write_data(plan, planner).wait()
        digests = [
            WriteResult(MetadataIndex(digest.file), digest.nbytes, digest)
            for digest in self._files.digests.values()
        ]
        future: torch.futures.Future[list[WriteResult]] = torch.futures.Future()
        future.set_result([*written, *digests])
        return future

    def finish(self, metadata: Metadata, results: Any) -> None:
        """Write what makes the files a checkpoint, and put it into its place."""
        told = [result for each in results for result in each]
        digests = [r.storage_data for r in told if isinstance(r.storage_data, FileDigest)]
        super().finish(metadata, [[r for r in told if not isinstance(r.storage_data, FileDigest)]])
        write_digests(self._partial, [*digests, self._files.digests[METADATA]])
        _sync(self._partial)
        if self._folder.exists():
            if self._previous.exists():
                shutil.rmtree(self._previous)
            self._folder.rename(self._previous)
        self._partial.rename(self._folder)
        _sync(self._folder.parent)
        if self._previous.exists():
            shutil.rmtree(self._previous)


def _sync(folder: Path) -> None:
    """Write the entries of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# -- saving beside training ----------------------------------------------------------------------------------


class _Copied(AsyncStager):
    """The stager of a state dict that is a copy already."""

    should_synchronize_after_execute = False

    def stage(self, state_dict: dict[str, Any]) -> dict[str, Any]:
        """Return the state dict."""
        return state_dict

    def synchronize_staging(self) -> None:
        """Return: there is nothing to wait for."""

    def close(self) -> None:
        """Return: there is nothing to release."""


def _copied(value: Any) -> Any:
    """Return a tensor in new memory of the CPU; another value as it is."""
    if isinstance(value, DTensor):
        return DTensor.from_local(
            _copied(value.to_local()),
            _mesh_on_cpu(value),
            value.placements,
            run_check=False,
            shape=value.shape,
            stride=value.stride(),
        )
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    return value


def _mesh_on_cpu(value: DTensor) -> Any:
    mesh = value.device_mesh
    if mesh.device_type == "cpu":
        return mesh
    return DeviceMesh("cpu", mesh.mesh, mesh_dim_names=mesh.mesh_dim_names, _init_backend=False)


def _saving_group(process_group: Any) -> dist.ProcessGroup | None:
    """Return the group of its own in which the processes of a group save; None without a default group."""
    if not dist.is_initialized():
        return None
    group: Any = dist.group.WORLD if process_group is None else process_group
    saving = _saving_groups.get(group)
    if saving is None:
        ranks = dist.get_process_group_ranks(group)
        saving = dist.new_group(ranks, backend="gloo", use_local_synchronization=True)
        assert isinstance(saving, dist.ProcessGroup), "this process is a member"
        _saving_groups[group] = saving
    return saving
