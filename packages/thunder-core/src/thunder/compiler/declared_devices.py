"""Tensors on the meta device that are declared to be on another one, and have no values in a call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thunder.frontend.facts import Fact
from thunder.ops import prims
from thunder.wrappers.meta_weights import without_values


def refuse_without_values(facts: Iterable[Fact], roots: dict[str, Any]) -> None:
    """Raise InvalidArgument for the first tensor that was traced on a declared device and is on meta still.

    A transform may have exchanged it for a tensor with values meanwhile.
    """
    for fact in facts:
        if fact.sym is not prims.check_tensor or "Meta" not in fact.expected.dispatch_keys:
            continue
        if fact.expected.device.type != "meta" and fact.path.fetch(roots).is_meta:
            raise without_values(fact.path.source, fact.expected.device)
