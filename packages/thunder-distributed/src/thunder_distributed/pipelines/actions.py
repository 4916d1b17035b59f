"""The actions of a pipeline, and the messages between its stages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

__all__ = ["Action", "Message", "needed_by"]


@dataclass(frozen=True, order=True)
class Action:
    """The forward (`F`) or backward (`B`) of a microbatch in a stage.

    In a schedule with `W`, `B` computes the gradients of a stage's inputs, and `W` those of its parameters.
    """

    kind: Literal["F", "B", "W"]
    stage: int
    microbatch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.microbatch}@{self.stage}"

    __repr__ = __str__


@dataclass(frozen=True, order=True)
class Message:
    """What one stage sends to another of a microbatch: values (`F`), or their gradients (`B`).

    `sends` says which side of it this is.
    """

    kind: Literal["F", "B"]
    source: int
    target: int
    microbatch: int
    sends: bool

    def __str__(self) -> str:
        verb = "send" if self.sends else "receive"
        return f"{verb} {self.kind}{self.microbatch} {self.source}→{self.target}"

    __repr__ = __str__


def needed_by(action: Action, stages: int, splits_backward: bool) -> Iterator[Action]:
    """Yield the actions that have to be over before one begins."""
    kind, stage, microbatch = action.kind, action.stage, action.microbatch
    if kind == "F" and stage:
        yield Action("F", stage - 1, microbatch)
    if kind == "B":
        yield Action("F", stage, microbatch)
        if stage + 1 < stages:
            yield Action("B", stage + 1, microbatch)
    if kind == "W":
        yield Action("B", stage, microbatch)
