"""Backward steps that are copies of the step of an equal call (Note [Equal calls] in ``formula_steps``).

A copy is made when the step runs, of the gradients that it reads then:

    t0 = get_grad(y)                                    the gradient of z is t7
    t1 = mul(t0, 2)         the copy for y = z, x = w   t1 = mul(t7, 2)
    put_grad(x, t1)                                     t1 is added to the gradient of w
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

from thunder.ir.effects import has_effect
from thunder.ir.proxies import TensorProxy
from thunder.ir.statement_copies import StatementCopies, computed_by
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ir.trace import TraceCtx
from thunder.ops.rule_parts import GETTERS, PUT_GRAD

__all__ = ["StepCopy", "StepTemplate"]


@dataclass(frozen=True, eq=False)
class StepTemplate:
    """The step of a call, which is copied for others.

    ``values`` are those of the call; ``reads`` and ``adds_to`` are the positions of those whose gradients it
    reads, and to whose gradients it adds. ``count`` names were taken; what is ``computed``, and the
    ``gradients`` that are read, have numbers among these.
    """

    values: tuple[Any, ...]
    statements: Sequence[BoundSymbol]
    computed: Sequence[tuple[TensorProxy, int]]
    gradients: Sequence[tuple[TensorProxy, int]]
    count: int
    reads: Sequence[int]
    adds_to: Sequence[int]

    @classmethod
    def of(
        cls, call: BoundSymbol, statements: Sequence[BoundSymbol], numbering: tuple[str, int], count: int
    ) -> StepTemplate | None:
        """Return the template of the step of a call that has taken ``count`` names; None if there is none."""
        beginning, start = numbering
        numbers = {f"{beginning}{n}": n - start for n in range(start, start + count)}
        computed, values = computed_by(statements), _values_of(call)
        known = set(map(id, (*values, *computed)))
        parts = list(with_parts(statements))
        getters = [b for b in statements if b.sym.id in GETTERS]
        setters = [b for b in statements if b.sym.id == PUT_GRAD]
        is_plain = (
            all(type(p) is TensorProxy and p.name in numbers for p in computed)
            and not any(has_effect(b) for b in statements if b not in getters and b not in setters)
            and not any(part.header is not None or part.sym.bind_postprocess is not None for part in parts)
            and all(id(p) in known for part in parts for p in (*part.flat_proxy_args, *part.flat_proxy_outs))
        )
        if not is_plain:
            return None
        positions = {id(value): i for i, value in enumerate(values)}
        gradients = {id(b.output) for b in getters}
        return cls(
            values,
            statements,
            [(p, numbers[p.name]) for p in computed if id(p) not in gradients],
            [(p, numbers[p.name]) for p in computed if id(p) in gradients],
            count,
            [positions[id(b.args[0])] for b in getters],
            [positions[id(b.args[0])] for b in setters],
        )

    def copied(self, trace: TraceCtx, call: BoundSymbol) -> StepCopy | None:
        """Return the step of an equal call; None if it would take other names."""
        with trace.naming_after(call.flat_proxy_outs):
            names = trace.make_names(self.count)
        return None if names is None else StepCopy(self, call, names)


class StepCopy(Sequence[BoundSymbol]):
    """The statements of a step that is a copy, which are made when they are read."""

    __slots__ = ("_call", "_computed", "_names", "_statements", "_values", "template")

    def __init__(self, template: StepTemplate, call: BoundSymbol, names: Sequence[str]) -> None:
        self.template, self._call, self._names = template, call, names
        self._values = _values_of(call)
        self._computed = [proxy.copy(names[n], proxy.name_hint) for proxy, n in template.computed]
        self._statements: list[BoundSymbol] | None = None

    @property
    def reads(self) -> Iterator[str]:
        """The names of the values whose gradients the step reads."""
        return (self._values[i].name for i in self.template.reads)

    @property
    def adds_to(self) -> Iterator[TensorProxy]:
        """The values to whose gradients the step adds."""
        return (self._values[i] for i in self.template.adds_to)

    def values(self) -> dict[int, Any]:
        """Return what is in the place of the template's values, by ``id``, but for the gradients it reads."""
        values = dict(zip(map(id, self.template.values), self._values, strict=True))
        for (proxy, _), computed in zip(self.template.computed, self._computed, strict=True):
            values[id(proxy)] = computed
        return values

    def copy_of(self, statement: BoundSymbol, values: Mapping[int, Any]) -> BoundSymbol:
        """Return a statement of the template with these values, at the line of the call."""
        copied = StatementCopies(values).copy_of(statement)
        copied.source = self._call.source
        return copied

    def _made(self) -> list[BoundSymbol]:
        if self._statements is None:
            values = self.values()
            for proxy, n in self.template.gradients:
                values[id(proxy)] = proxy.copy(self._names[n], proxy.name_hint)
            self._statements = [self.copy_of(b, values) for b in self.template.statements]
        return self._statements

    @overload
    def __getitem__(self, index: int) -> BoundSymbol: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[BoundSymbol]: ...

    def __getitem__(self, index: int | slice) -> BoundSymbol | Sequence[BoundSymbol]:
        return self._made()[index]

    def __len__(self) -> int:
        return len(self.template.statements)


def _values_of(call: BoundSymbol) -> tuple[Any, ...]:
    return (*call.flat_proxy_args, *call.flat_proxy_outs)
