"""The statements that draw from generators of Python and of NumPy, at their place in each call.

Note [Draws of the host]

    if random.random() < 0.5:          n0 = draw_number(random())
        x = x * rng.uniform(1, 2)      b0 = n0 < 0.5, a decision
    order = rng.permutation(3)    →    n1 = draw_number(uniform(1, 2)); t1 = x * n1
    y = x[torch.from_numpy(order)]     t2 = draw_array(permutation(3))

A number is a value of the trace, like one out of a tensor; an array is one of a tensor (Note [Arrays]); other
results, such as a list, are decisions. While a program is traced it draws the numbers of the call, and the
generators are set back at the end, so that the compiled program draws them again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.base import opaque_results
from thunder.base.dtypes import to_dtype
from thunder.base.equal_values import same_leaf
from thunder.base.errors import DecisionChanged
from thunder.base.tags import OpTags
from thunder.frontend.host_draws.host_generators import method_of, set_state, state_of
from thunder.frontend.natives.libraries import numpy
from thunder.ir.proxies import FloatProxy, IntegerProxy, NumberProxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ops.operator import NONDIFFERENTIABLE
from thunder.ops.prims.declaration import primitive

__all__ = ["HostDraw", "NewGenerator", "draw_array", "draw_decided", "draw_number", "drawn_generators"]


@dataclass(frozen=True, eq=False)
class HostDraw:
    """A call of a method of a generator, with arguments that are the same in each call."""

    generator: Any
    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:
        arguments = [*map(repr, self.args), *(f"{name}={value!r}" for name, value in self.kwargs.items())]
        return f"{type(self.generator).__name__}.{self.name}({', '.join(arguments)})"

    def run(self) -> Any:
        """Draw."""
        return frozen(method_of(self.generator, self.name)(*self.args, **self.kwargs))


@dataclass(frozen=True, eq=False)
class NewGenerator(HostDraw):
    """A generator without a seed that the program makes: each call gives it a state of the system's.

    ``number`` counts those before it: where a call begins again it has the same states.
    """

    make: Any = None
    number: int = 0

    def run(self) -> None:
        """Give the generator the state of a new one."""
        state = opaque_results.made(("generator", self.number), lambda: state_of(self.make()))
        set_state(self.generator, state)


def frozen(value: Any) -> Any:
    """Return a result with tuples in place of lists."""
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def _number_meta(draw: HostDraw, python_type: type) -> NumberProxy:
    return FloatProxy() if python_type is float else IntegerProxy(python_type=int)


def _number(draw: HostDraw, python_type: type) -> Any:
    return draw.run()


def _array_meta(draw: HostDraw, shape: tuple[int, ...], dtype: torch.dtype) -> TensorProxy:
    return TensorProxy(shape=shape, dtype=to_dtype(dtype), device="cpu", requires_grad=False)


def _array(draw: HostDraw, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    module: Any = numpy()
    return torch.from_numpy(module.ascontiguousarray(draw.run()))


def _nothing(draw: HostDraw, answer: Any, index: int) -> None:
    """The meta function of a statement without result."""


def _decided(draw: HostDraw, answer: Any, index: int) -> None:
    drawn = draw.run()
    if index >= 0 and not same_leaf(drawn, answer):
        raise DecisionChanged(index, drawn)


_TAGS = (OpTags.DONT_DCE, OpTags.RANDOM_OP, OpTags.DONT_RECOMPUTE_IN_BACKWARD)

#: draws a number
draw_number = primitive(
    "draw_number", _number_meta, python_impl=_number, eager=_number, vjp=NONDIFFERENTIABLE, tags=_TAGS
)
#: draws an array, as a tensor
draw_array = primitive("draw_array", _array_meta, eager=_array, vjp=NONDIFFERENTIABLE, tags=_TAGS)
#: draws another object; raises DecisionChanged if it is not ``answer``, unless ``index`` is -1
draw_decided = primitive(
    "draw_decided",
    _nothing,
    python_impl=_decided,
    vjp=NONDIFFERENTIABLE,
    tags=(*_TAGS, OpTags.CHECKS_DECISION, OpTags.SKIPPED_EARLY),
)
_SYMBOLS = frozenset({draw_number.id, draw_array.id, draw_decided.id})


def drawn_generators(calls: Iterable[BoundSymbol]) -> tuple[Any, ...]:
    """Return the generators of Python and of NumPy from which calls draw."""
    draws = [b.args[0] for b in with_parts(calls) if b.sym.id in _SYMBOLS]
    return tuple({id(draw.generator): draw.generator for draw in draws}.values())
