"""The memory that a kernel allocates for itself while it runs, as a tag of its call."""

from __future__ import annotations

from thunder.base.tags import OpenTag
from thunder.ir.symbol import BoundSymbol

__all__ = ["Workspace", "with_workspace", "workspace_bytes"]


class Workspace(OpenTag):
    """The bytes that a call allocates, and releases before it returns."""

    def __init__(self, count: int) -> None:
        super().__init__(f"workspace of {count} bytes")
        self.count, self.arguments = count, (count,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Workspace) and other.count == self.count

    def __hash__(self) -> int:
        return hash(self.count)


def with_workspace(bsym: BoundSymbol, count: int) -> BoundSymbol:
    """Return a call that allocates so many bytes for itself."""
    return bsym.from_bsym(tags=bsym.own_tags | {Workspace(count)}) if count else bsym


def workspace_bytes(bsym: BoundSymbol) -> int:
    """Return the bytes that a call allocates for itself, as its executor declares; 0 if it does not."""
    return max((tag.count for tag in bsym.own_tags if isinstance(tag, Workspace)), default=0)
