"""The lock file that the option `placement` names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

import torch

from thunder.core.errors import InvalidArgument, UserError
from thunder_autotune.entries import Entries
from thunder_autotune.lock_files import digest_of, read
from thunder_autotune.placement import add_stages

__all__ = ["configure"]


def configure(pipeline: Any, options: Mapping[str, Any]) -> None:
    """Add the stages by which the file decides; it is read when a compile begins."""
    path, is_required = options["placement"], options["require_placement"]
    add_stages(pipeline, "autotune.placement", partial(_of_file, path), path, is_required=is_required)


def _of_file(path: str) -> Entries:
    if not path.endswith(".toml"):
        raise InvalidArgument(
            f"placement={path!r} is not a placement",
            hint='It is "order", "measured", "estimated", or the path of a lock file, which ends with .toml.',
        )
    digest = digest_of(path)
    _refuse_other_file(path, digest)
    return _read(path, digest)


@cache
def _read(path: str, digest: str) -> Entries:
    return read(path)


def _refuse_other_file(path: str, digest: str) -> None:
    """Raise UserError where a process of a group has another file than the first one that has compiled.

    That one leaves the digest in the store of the group, and the others compare theirs; none waits.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized()):
        return
    if distributed.get_world_size() < 2:
        return
    store = distributed.distributed_c10d._get_default_store()
    first = store.compare_set(f"thunder.autotune/{path}", "", digest).decode()
    if first != digest:
        raise UserError(
            f"the lock file {path!r} is not that of the process of the group which has compiled first",
            found={"digest here": digest[:12], "digest there": first[:12]},
            hint="Give all processes the same file, and leave it as it is: their programs have to be equal.",
        )
