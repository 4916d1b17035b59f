"""Calls of a graph that change torch's state for the calls after them: grad mode, autocast, and others."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.amp import autocast_mode
from torch.autograd import grad_mode

__all__ = [
    "ContextPair",
    "changes_unknown_state",
    "context_pairs",
    "exit_of",
    "grad_modes",
    "is_context_call",
    "is_of_inference_mode",
]

SET_GRAD: Final = torch._C._set_grad_enabled

#: function that enters a context → function that leaves it, whose argument the first one returned
_EXITS: Final[dict[Any, Callable[[Any], Any]]] = {
    autocast_mode._enter_autocast: autocast_mode._exit_autocast,
    grad_mode._enter_inference_mode: grad_mode._exit_inference_mode,
}
#: the calls of inference mode in graphs, which thunder does not compile
_OF_INFERENCE: Final = frozenset({grad_mode._enter_inference_mode, grad_mode._exit_inference_mode})
#: functions without a described result that change no state
_CHECKS: Final = frozenset({operator.setitem, torch._check})


@dataclass(frozen=True)
class ContextPair:
    """The positions of the two calls between which a state holds; `end` is None if it is never left."""

    start: int
    end: int | None


def is_context_call(node: torch.fx.Node) -> bool:
    """Return whether a node sets grad mode, or enters or leaves autocast or inference mode."""
    return node.op == "call_function" and (
        node.target is SET_GRAD or node.target in _EXITS or node.target in _EXITS.values()
    )


def is_of_inference_mode(node: torch.fx.Node) -> bool:
    """Return whether a node enters or leaves inference mode."""
    return node.target in _OF_INFERENCE


def exit_of(node: torch.fx.Node) -> Callable[[Any], Any] | None:
    """Return the function that leaves the context which a node enters, None for other nodes."""
    return _EXITS.get(node.target)


def changes_unknown_state(node: torch.fx.Node) -> bool:
    """Return whether a node may change a state that is not described here.

    TorchDynamo describes the result of each operator (`example_value`), and of no call that it wrote down for
    its effect on torch.
    """
    return (
        node.op == "call_function"
        and "example_value" not in node.meta
        and not is_context_call(node)
        and node.target not in _CHECKS
    )


def grad_modes(nodes: Sequence[torch.fx.Node], enabled: bool) -> list[bool]:
    """Return whether grad mode is on at each node; `enabled` is the mode at the first one."""
    modes = []
    for node in nodes:
        modes.append(enabled)
        if node.target is SET_GRAD:
            enabled = bool(node.args[0])
    return modes


def context_pairs(nodes: Sequence[torch.fx.Node], enabled: bool) -> list[ContextPair]:
    """Return the pairs of context calls among consecutive nodes; `enabled` is the grad mode at the first."""
    pairs: list[ContextPair] = []
    entered: dict[torch.fx.Node, int] = {}
    grad_changes: list[tuple[int, bool]] = []
    for position, node in enumerate(nodes):
        if node.target is SET_GRAD and node.op == "call_function":
            mode = bool(node.args[0])
            if grad_changes and grad_changes[-1][1] == mode:
                pairs.append(ContextPair(grad_changes.pop()[0], position))
            else:
                grad_changes.append((position, enabled))
            enabled = mode
        elif exit_of(node) is not None:
            entered[node] = position
        elif is_context_call(node):
            start = entered.pop(node.args[0], None) if isinstance(node.args[0], torch.fx.Node) else None
            pairs.append(ContextPair(start, position) if start is not None else ContextPair(position, None))
    unpaired = [*entered.values(), *(position for position, _ in grad_changes)]
    return [*pairs, *(ContextPair(position, None) for position in unpaired)]
