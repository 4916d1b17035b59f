"""The reasons for which a graph of TorchDynamo is cut, with the user's lines."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

import torch

__all__ = ["SplitReason", "SplitReasonType", "user_line", "without_frames"]


class SplitReasonType(Enum):
    """The kinds of reasons for which a node does not run in thunder."""

    UNSUPPORTED_NODE = auto()
    """A higher-order operator, or a call that changes torch's state, that thunder does not compile."""
    MISSING_OP_SUPPORT = auto()
    """An operator that thunder does not support, or not with these arguments."""
    EXCEPTION_PROXY_THUNDER_OP = auto()
    """Values of the node that cannot be described to thunder, such as sizes that depend on data."""
    EXCEPTION_META_THUNDER_OP = auto()
    """Another error while thunder compiled the node."""


@dataclass(frozen=True, kw_only=True)
class SplitReason:
    """The reason for which a node, or a part of a graph, does not run in thunder.

    `node` is the name of the node in the graph, None if the cause is not one node; `line` is the user's line,
    such as `model.py:41  q = f(x)`, empty if torch did not keep it.
    """

    type: SplitReasonType
    info: str
    node: str | None = None
    line: str = ""
    exception: Exception | None = None

    def __str__(self) -> str:
        place = f"\n  at  {self.line}" if self.line else ""
        return f"{self.type.name}: {self.node or 'graph'}: {self.info}{place}"


def without_frames(error: Exception) -> Exception:
    """Return an error without tracebacks, its causes too: their frames hold the values of a call."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__ = None
        cause = cause.__cause__ or cause.__context__
    return error


_TORCH: Final = os.path.dirname(torch.__file__) + os.sep
_FRAME: Final = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+)[^\n]*\n\s*(?P<text>[^\n]*)')


def user_line(node: torch.fx.Node) -> str:
    """Return the user's line of a node, `file:line   text`; empty if the node does not have it.

    It is the innermost line outside of torch, or inside if there is no other.
    """
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    if not frames:
        return ""
    frame = next((f for f in reversed(frames) if not f["file"].startswith(_TORCH)), frames[-1])
    return f"{frame['file']}:{frame['line']}   {frame['text']}"
