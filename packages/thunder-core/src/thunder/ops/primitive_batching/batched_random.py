"""Batching rules of random operators, by the ``randomness`` of ``torch.vmap``.

``"different"`` draws numbers for each example, as eager does: one call for the whole batch. ``"same"`` draws
them once, which calls without batched arguments do by themselves. The default, ``"error"``, refuses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from thunder.base.errors import OperatorError
from thunder.ops.batched_call import BatchedCall, BatchRule
from thunder.ops.primitive_names import prims

ERROR = (
    "vmap: called random operation while in randomness error mode. Please either use the 'same' or "
    "'different' randomness flags on vmap or perform the randomness operation out of vmap"
)
SAME = (
    "Vmap does not currently support same randomness with a batched tensor input. Please use 'different' "
    "randomness, or file an issue."
)


def check_randomness(randomness: str, has_batched_argument: bool) -> None:
    """Raise OperatorError with torch's text where a random operator may not be called."""
    if randomness == "error":
        raise OperatorError(ERROR)
    if randomness == "same" and has_batched_argument:
        raise OperatorError(SAME)


@dataclass(frozen=True)
class WithSameNumbers:
    """A batching rule that under ``randomness="same"`` draws one example's numbers, and uses them for all."""

    rule: BatchRule

    def __call__(self, c: BatchedCall) -> Any:
        """Apply the rule."""
        return self.rule(c)


def with_shape(c: BatchedCall) -> Any:
    """Draw the numbers of all examples at once."""
    changes: dict[str, Any] = {"shape": (c.size, *c.arguments["shape"])}
    if c.arguments.get("strides") is not None:
        changes["strides"] = None
    if "p" in c.arguments:
        changes["p"] = c.full(c.p)
    if "bounds" in c.arguments:
        keywords = {k: v for k, v in {**c.kwargs, **changes}.items() if k != "shape"}
        return c.sym(changes["shape"], *c.args[1:], **keywords)
    return c.again(**changes)


def bernoulli(c: BatchedCall) -> Any:
    """Draw with the probabilities of all examples."""
    return c.again(a=c.full(c.a))


def multinomial(c: BatchedCall) -> Any:
    """Draw from the distributions of all examples."""
    a = c.full(c.a)
    if c.rank(c.a) == 1:
        return c.again(a=a)
    rows, columns = c.shape(c.a)
    drawn = c.again(a=prims.reshape(a, (c.size * rows, columns)))
    return prims.reshape(drawn, (c.size, rows, c.n))
