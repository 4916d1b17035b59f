"""Batching rules of random operators, by the ``randomness`` of ``torch.vmap``.

``"different"`` draws numbers for each example, as eager does: one call for the whole batch. ``"same"`` draws
them once, which calls without batched arguments do by themselves. The default, ``"error"``, refuses.
"""

from __future__ import annotations

from typing import Any

from thunder.base.errors import OperatorError
from thunder.batching.batched_call import BatchedCall, batches
from thunder.ops import prims

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


#: draws of a shape: the shape of all examples is drawn at once
_WITH_SHAPE = ("randn", "randint", "uniform", "normal", "trunc_normal", "log_normal", "cauchy", "exponential")


@batches(*(f"prims.{name}" for name in (*_WITH_SHAPE, "geometric", "randint_fill", "bernoulli_fill")))
def _with_shape(c: BatchedCall) -> Any:
    changes: dict[str, Any] = {"shape": (c.size, *c.arguments["shape"])}
    if c.arguments.get("strides") is not None:
        changes["strides"] = None
    if "p" in c.arguments:
        changes["p"] = c.full(c.p)
    if "bounds" in c.arguments:
        keywords = {k: v for k, v in {**c.kwargs, **changes}.items() if k != "shape"}
        return c.sym(changes["shape"], *c.args[1:], **keywords)
    return c.again(**changes)


#: operators with the same numbers for all examples of a batched argument
WITH_SAME_NUMBERS = frozenset({"torch.nn.functional.dropout"})


@batches("torch.nn.functional.dropout")
def _dropout(c: BatchedCall) -> Any:
    if c.inplace:
        return NotImplemented
    if c.randomness == "same":
        shape, input = c.shape(c.input), c.full(c.input)
        ones = prims.full(shape, 1.0, device=input.device, dtype=input.dtype)
        return prims.mul(input, c.full(c.again(input=ones)))
    return c.again(input=c.full(c.input))


@batches("prims.bernoulli")
def _bernoulli(c: BatchedCall) -> Any:
    return c.again(a=c.full(c.a))


@batches("prims.multinomial")
def _multinomial(c: BatchedCall) -> Any:
    a = c.full(c.a)
    if c.rank(c.a) == 1:
        return c.again(a=a)
    rows, columns = c.shape(c.a)
    drawn = c.again(a=prims.reshape(a, (c.size * rows, columns)))
    return prims.reshape(drawn, (c.size, rows, c.n))
