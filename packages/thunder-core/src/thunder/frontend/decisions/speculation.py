"""Speculation: a program that asks for data is traced for the answers of the call.

Note [Decisions on data] shows the result.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from thunder.base.errors import DataDependentControlFlow, ThunderError
from thunder.base.pytree import tree_iter, tree_map
from thunder.frontend.decisions.computed_sizes import ComputedSizes
from thunder.frontend.decisions.decision import Decision
from thunder.frontend.decisions.early_run import EarlyRun
from thunder.frontend.places import DECIDES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import IntegerProxy, NumberProxy, Proxy, TensorProxy, is_proxy, pytype
from thunder.ir.recorder import UNDECIDED
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ops import prims
from thunder.ops.prims.decision_checks import answer_to, number_of
from thunder.ops.sized_results import described

__all__ = ["Speculation"]


class Speculation:
    """The decisions of one acquisition.

    Args:
        session: the acquisition.
        run: runs the program up to a question.
        known: the answers to the first questions, which a run of the compiled program has found.
        sizes: the sizes that the computation finds, which are no decisions.
    """

    def __init__(
        self,
        session: TracingSession,
        run: EarlyRun,
        known: Sequence[Any] = (),
        sizes: ComputedSizes | None = None,
    ) -> None:
        self.decisions: list[Decision] = []
        #: whether the program has asked for data
        self.has_run = False
        #: the refusal of a text of values, unless the program raises, so that Python makes the text
        self.refusal: ThunderError | None = None
        self._values: dict[str | None, Any] = {}  # of numbers that were decided on, by name
        self._session, self._run, self._known = session, run, tuple(known)
        self._sizes = ComputedSizes() if sizes is None else sizes
        self._size_of: dict[str, Any] = {}  # the sizes that numbers are, by the names of these

    def decide(self, question: str, operands: tuple[Any, ...], size_place: str | None = None) -> Any:
        """Return the answer to a question, and record its check; UNDECIDED where that is not possible."""
        if len(operands) == 1 and isinstance(operands[0], SymbolicNumber):
            return answer_to(question, (operands[0].value,))
        end = None if self._may_decide() else self._statements_before(operands)
        if end is None and not self._may_decide():
            return UNDECIDED
        session = self._session
        number = operands[0].name if question == "value" else None
        if number in self._values:
            return self._values[number]
        self.has_run = True
        index = len(self.decisions)
        if index < len(self._known):
            answer = self._known[index]
        else:
            answer = self._asked(lambda: self._run.answer(question, operands, end))
        check = prims.check_decision.bind(
            *operands, question=question, answer=answer, index=index, output=None
        )
        session.place.when_allowed(DECIDES, lambda: session.trace.record(check))
        if number is not None:
            self._values[number] = answer
        source = session.locate()
        self.decisions.append(
            Decision(
                question=question,
                operands=", ".join(map(_described, operands)),
                answer=answer,
                where=None if source is None else source.location,
                size_place=size_place,
            )
        )
        return answer

    def as_size(self, number: Any) -> Any:
        """Return an integer of the trace as a size: one that the computation finds, or its value, a decision.

        UNDECIDED where neither can be recorded.
        """
        if isinstance(number, TensorProxy):
            if number.shape or not number.dtype.is_integer or not self._may_decide():
                return self.decide("index", (number,))
            number = prims.item(number)
        place = self._place("index")
        if not isinstance(number, IntegerProxy) or number.python_type is not int or not self._may_decide():
            return self.decide("index", (number,))
        if number.name in self._size_of:
            return self._size_of[number.name]
        if not self._sizes.are_at(place):
            return self.decide("index", (number,), place)
        self.has_run = True
        hint = self._asked(lambda: self._run.value(number))
        size = self._size_of[number.name] = self._sizes.new(hint, place, None)
        self._session.trace.record(prims.as_size.bind(number, output=size))
        self._run.note({size.name: hint})
        return size

    def elements(self, x: TensorProxy) -> Any:
        """Return the elements of a tensor as nested tuples: sizes that the computation finds, or a decision.

        UNDECIDED where neither can be recorded.
        """
        counts = tuple(x.shape)
        if not counts and self._may_decide():
            return prims.item(x)
        if not (x.dtype.is_integer and not x.dtype.is_bool and len(counts) > 0 and _is_short(counts)):
            return self.decide("tolist", (x,))
        place = self._place("tolist")
        if not self._may_decide() or not self._sizes.are_at(place):
            return self.decide("tolist", (x,), place)
        self.has_run = True
        hints = self._asked(lambda: self._run.answer("tolist", (x,)))
        sizes = [self._sizes.new(hint, place, None) for hint in tree_iter(hints)]
        self._session.trace.record(prims.as_sizes.bind(x, output=tuple(sizes)))
        self._run.note({size.name: size.hint for size in sizes})
        remaining = iter(sizes)
        return tree_map(lambda _: next(remaining), hints)

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """Return what an early run answers; a refusal has the lines of the program."""
        try:
            return ask()
        except DataDependentControlFlow as error:
            raise error.add_locations(self._session.locations()) from error.__cause__

    def _place(self, what: str) -> str:
        """Return the name of a place where a size depends on data: the line and the operator."""
        source = self._session.locate()
        return f"{what} at {'an unknown line' if source is None else source.location}"

    def run_once(self, function: Callable[[list[Any]], Any], operands: Iterable[TensorProxy]) -> Any:
        """Run a function that a program calls, once, on values of the program so far."""
        self.has_run = True
        return self._run.run_once(function, operands)

    def read_inputs(self, count: int) -> list[Any]:
        """Return the first inputs of the call that is traced, read again."""
        return self._run.read_inputs(count)

    def record_sized(
        self,
        call: str,
        compute: Callable[..., Any],
        record: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        record_with_size: Callable[..., Any] | None = None,
    ) -> Any:
        """Record a call with the metadata of its results, which depend on data, as a decision.

        It is computed for them, unless they are known; UNDECIDED where no check can be recorded. With
        ``record_with_size`` the computation may find the size of the results.
        """
        if not self._may_decide():
            return UNDECIDED
        self.has_run = True
        place = None if record_with_size is None else self._place(call.partition("(")[0])
        is_computed = place is not None and self._sizes.are_at(place)
        index, values = len(self.decisions), None
        if index < len(self._known) and not is_computed:
            answer = self._known[index]
        else:
            values = self._asked(lambda: self._run.compute(compute, args, kwargs))
            answer = described(values)
        if is_computed and record_with_size is not None:
            recorded = record_with_size(answer, lambda hint: self._sizes.new(hint, str(place), 0))
            if recorded is not None:
                results, size = recorded
                self._note_values(results, values)
                self._run.note({size.name: size.hint})
                return results
        results = record(results=answer, decision=index)
        if values is not None:
            self._note_values(results, values)
        source = self._session.locate()
        where = None if source is None else source.location
        self.decisions.append(
            Decision(question="sizes", operands=call, answer=answer, where=where, size_place=place)
        )
        return results

    def _note_values(self, results: Any, values: Any) -> None:
        """Note the values of results that the early run has computed."""
        pairs = zip(tree_iter(results), tree_iter(values), strict=True)
        self._run.note({p.name: v for p, v in pairs})

    def note_run(self, name: str, answer: Any, results: Iterable[TensorProxy], values: Iterable[Any]) -> None:
        """Note the results of a function that has run: what the program depends on is a decision."""
        self._run.note({r.name: v for r, v in zip(results, values, strict=True)})
        source = self._session.locate()
        where = None if source is None else source.location
        self.decisions.append(Decision(question="opaque", operands=name, answer=answer, where=where))

    def note_drawn(self, proxy: Any, value: Any) -> None:
        """Note the number or tensor that a statement draws in this call; it is not run early."""
        self.has_run = True
        self._run.note({proxy.name: value})

    def note_decided_draw(self, draw: str, answer: Any) -> int:
        """Note a decision on what a statement draws; return its index."""
        self.has_run = True
        source = self._session.locate()
        where = None if source is None else source.location
        self.decisions.append(Decision(question="drawn", operands=draw, answer=answer, where=where))
        return len(self.decisions) - 1

    def note_copy(self, value: TensorProxy, copy: TensorProxy) -> None:
        """Note that a recorded call now computes ``copy``, of which ``value`` is computed."""
        self._run.note_copy(value, copy)

    def note_rebound(self, value: TensorProxy, before: TensorProxy) -> None:
        """Note that the calls recorded so far compute ``before`` in the place of ``value``."""
        self._run.note_copy(value, before)
        self._run.drop(value)

    def begin_again(self) -> bool:
        """Let the next question run the whole program, since calls that ran were replaced by others.

        Returns whether that is possible.
        """
        return self._run.begin_again()

    def has_computed(self, value: TensorProxy) -> bool:
        """Return whether an early run has computed a value."""
        return self._run.has_computed(value)

    def values_for_text(self, tree: Any, refusal: ThunderError) -> Any:
        """Return a tree in which proxies are replaced by values of this call, for a text of them.

        The text is different in each call, so that a program can make one only if it raises: then Python runs
        the program. So it is after a decision, such as a check of arguments; ``refusal`` is raised elsewhere,
        and by the program that does not raise.
        """
        self._session.objects.effects += 1
        if not self.has_run or not self._may_decide():
            raise refusal.add_locations(self._session.locations())
        self.refusal = self.refusal or refusal.add_locations(self._session.locations())
        return tree_map(lambda leaf: self._run.value(leaf) if is_proxy(leaf) else leaf, tree)

    def compute_number(self, operation: str, operands: tuple[Any, ...]) -> Any:
        """Return the number that an operation of Python's computes from numbers, as a value of the trace.

        The type of a power of integers depends on the exponent, so that the exponent is a decision. That of a
        power with an exponent of type float depends on the sign of the base, which is one.
        """
        if not self._may_decide():
            values = [self.decide("value", (x,)) if is_proxy(x) else x for x in operands]
            return UNDECIDED if UNDECIDED in values else number_of(operation, *values)
        if operation == "pow" and pytype(operands[1]) is float and self._is_positive(operands[0]):
            return prims.compute_number(operation, *operands)
        if operation == "pow" and pytype(operands[1]) is not float and is_proxy(operands[1]):
            operands = (operands[0], self.decide("value", operands[1:]))
        if operation == "pow" and any(pytype(x) is complex or pytype(operands[1]) is float for x in operands):
            values = [self.decide("value", (x,)) if is_proxy(x) else x for x in operands]
            return operator.pow(*values)
        if not any(map(is_proxy, operands)):
            return number_of(operation, *operands)
        return prims.compute_number(operation, *operands)

    def _is_positive(self, number: Any) -> bool:
        """Return whether a real number is not negative; of a number of the trace it is a decision."""
        if pytype(number) not in (float, int):
            return False
        if not is_proxy(number):
            return bool(number >= 0)
        return bool(self.decide("value", (prims.compute_number("ge", number, 0),)))

    def _statements_before(self, operands: tuple[Any, ...]) -> int | None:
        """Return how many statements compute numbers from outside of the part in which no check is recorded.

        None if an operand is another value. A number of the program around a mapped function, or around a
        backward, is the same within it: the check is recorded after that part, and before what calls it.
        """
        start = self._session.place.beginning(DECIDES)
        names = {o.name for o in operands if isinstance(o, NumberProxy)}
        if start is None or any(isinstance(o, TensorProxy) for o in operands):
            return None
        before = self._session.trace.bound_symbols[:start]
        names -= {proxy.name for proxy, _ in self._session.objects.inputs}
        for count in range(start, 0, -1):
            if names.intersection(p.name for p in before[count - 1].flat_proxy_outs):
                defined = {p.name for b in before for p in b.flat_proxy_outs}
                return count if names <= defined else None
        return None if names else 0

    def _may_decide(self) -> bool:
        """Return whether a check can be recorded now.

        It cannot in a backward, which runs at another time, in a mapped function, whose values are those of
        several examples, nor in the decomposition of an operator, which may be recorded again or replaced by
        another.
        """
        return self._session.place.allows(DECIDES)


#: elements of the largest tensor that are sizes
_MOST_SIZES = 64


def _is_short(counts: tuple[Any, ...]) -> bool:
    """Return whether a shape has few elements, whose number does not vary."""
    return all(type(n) is int for n in counts) and 0 < math.prod(counts) <= _MOST_SIZES


def _described(operand: Any) -> str:
    if isinstance(operand, TensorProxy) and operand.name_hint is not None:
        return operand.name_hint
    return operand.type_string() if isinstance(operand, Proxy | TensorProxy) else repr(operand)
